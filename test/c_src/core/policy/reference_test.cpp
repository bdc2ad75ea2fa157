#include "core/policy/reference.hpp"

#include <algorithm>
#include <map>

#include "support/catch.hpp"
#include "support/mamba.hpp"
#include "support/melee.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"

namespace exphil {

using core::policy_reference_step;
using core::PolicyReferenceState;
using test::relative_error;

// The recorded logits are f32 roundings of a float64 run, and A = -exp(A_log) is rounded to f32 on loading:
// the total error was measured at 5e-8.
constexpr double kTolerance = 1e-6;

TEST_CASE("the policy oracle plays the recorded match", "[mamba_reference][melee]") {
  if (!test::have_melee()) return;
  const auto policy = test::melee_policy();
  const test::Match match = test::melee_match();
  PolicyReferenceState state(policy->config);
  std::vector<double> out(static_cast<std::size_t>(match.d_output));
  double worst = 0;
  for (std::int64_t i = 0; i < match.frames; ++i) {
    policy_reference_step(*policy, state, match.obs_at(i), out.data());
    worst = std::max(worst, relative_error(out.data(), match.logits_at(i), out.size()));
  }
  CAPTURE(worst);
  CHECK(worst < kTolerance);
  CHECK(relative_error(state.values, match.state()) < kTolerance);
}

TEST_CASE("the policy oracle reproduces the rollback trace", "[mamba_reference][melee]") {
  if (!test::have_melee()) return;
  const auto policy = test::melee_policy();
  const test::Match match = test::melee_rollback();
  PolicyReferenceState state(policy->config);
  std::map<std::int32_t, PolicyReferenceState> before;
  std::vector<double> out(static_cast<std::size_t>(match.d_output));
  double worst = 0;
  int jumps = 0, restores = 0;
  for (std::int64_t i = 0; i < match.frames; ++i) {
    const auto seen = before.find(match.frame[i]);
    if (seen != before.end()) {
      state = seen->second;
      ++restores;
      if (match.frame[i] <= match.frame[i - 1]) ++jumps;
    }
    before.insert_or_assign(match.frame[i], state);
    while (before.size() > 16) before.erase(before.begin());
    policy_reference_step(*policy, state, match.obs_at(i), out.data());
    worst = std::max(worst, relative_error(out.data(), match.logits_at(i), out.size()));
  }
  CAPTURE(worst);
  CHECK(worst < kTolerance);
  CHECK(jumps == 531);
  CHECK(restores == 1031);
}

TEST_CASE("the policy oracle reproduces the zero-state windows", "[mamba_reference][melee]") {
  if (!test::have_melee()) return;
  const auto policy = test::melee_policy();
  const test::Match match = test::melee_match();
  const test::Windows windows = test::melee_windows();
  CHECK(windows.end_index.size() == 64);
  std::vector<double> out(static_cast<std::size_t>(match.d_output));
  double worst = 0;
  for (std::size_t w = 0; w < windows.end_index.size(); ++w) {
    PolicyReferenceState state(policy->config);
    const std::int64_t last = windows.end_index[w];
    for (std::int64_t i = last - test::Windows::kLength + 1; i <= last; ++i) {
      policy_reference_step(*policy, state, match.obs_at(i), out.data());
    }
    worst = std::max(worst, relative_error(out.data(), windows.logits.data() + w * out.size(), out.size()));
  }
  CAPTURE(worst);
  CHECK(worst < kTolerance);
}

// Computed by hand: d_model = d_inner = d_state = dt_rank = 1, no convolution history.
TEST_CASE("one scalar policy, computed by hand", "[mamba_reference]") {
  test::PolicySpec spec;
  spec.d_input = spec.d_output = spec.d_model = spec.d_inner = spec.n_layer = 1;
  spec.d_state = spec.d_conv = spec.dt_rank = 1;
  spec.projection_bias = true;
  const auto policy = test::make_policy(spec);
  const test::MambaWeights all = test::mamba_weights(*policy);
  const test::MambaLayer& w = all.layers[0];
  const double a = -std::exp(static_cast<double>(w.a_log[0]));
  CHECK(policy->config.state_floats() == 1);
  PolicyReferenceState state(policy->config);
  const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  const auto norm = [&](double v, float weight) {
    return v / std::sqrt(v * v + all.config.norm_epsilon) * weight;
  };
  double ssm = 0;
  for (const float obs : {0.7f, -1.3f, 0.2f}) {
    double out = 0;
    policy_reference_step(*policy, state, &obs, &out);
    const double h = static_cast<double>(all.input_proj[0]) * obs + all.input_proj_bias[0];
    const double u = norm(h, w.norm[0]);
    const double x = silu((w.in_proj[0] * u + w.in_proj_bias[0]) * w.conv[0] + w.conv_bias[0]);
    const double z = w.in_proj[1] * u + w.in_proj_bias[1];
    const double dt = std::log1p(std::exp(w.x_proj[0] * x * w.dt_proj[0] + w.dt_proj_bias[0]));
    ssm = std::exp(static_cast<double>(static_cast<float>(a)) * dt) * ssm + dt * (w.x_proj[1] * x) * x;
    const double y = (w.x_proj[2] * x * ssm + w.d[0] * x) * silu(z);
    const double after = h + w.out_proj[0] * y + w.out_proj_bias[0];
    const double expected = norm(after, all.norm_f[0]) * all.head[0] + all.head_bias[0];
    CHECK(std::abs(out - expected) < 1e-12);
    CHECK(std::abs(state.values[0] - ssm) < 1e-12);
  }
}

}  // namespace exphil
