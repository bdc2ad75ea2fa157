// Matrix states in 16 bits on a GPU: every call, against the reference that rounds them too, and bit by bit.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "core/half.hpp"
#include "core/policy/rounding.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "cuda/policy/pack.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/gated_policy.hpp"
#include "support/head_policy.hpp"
#include "support/mamba3_policy.hpp"
#include "support/melee.hpp"
#include "support/numbers.hpp"
#include "support/policy_forms.hpp"
#include "support/random_sessions.hpp"

namespace exphil::test {
namespace {

using core::Precision;
using Weights = std::shared_ptr<const core::PolicyWeights>;

Weights stored(const core::PolicyWeights& weights, Precision states, Precision precision = Precision::f32) {
  return std::make_shared<core::PolicyWeights>(
      core::with_states(core::rounded_weights(weights, precision), states));
}

// A scan, and heads with the linear, the delta and the trapezoidal rule: channels and keys that fill their
// lanes, or odd ones.
std::vector<PolicyForm> forms_of_states(std::int64_t channels, std::int64_t keys) {
  PolicySpec spec;
  spec.d_input = 9, spec.d_model = 34, spec.d_inner = 70, spec.d_state = keys;
  std::vector<PolicyForm> all{policy_forms(spec).front()};
  std::vector<std::string> trunks;
  for (PolicyForm& form : matrix_forms(channels, keys)) {
    const std::string& trunk = form.weights->config.trunk;
    if (std::find(trunks.begin(), trunks.end(), trunk) != trunks.end()) continue;
    trunks.push_back(trunk);
    all.push_back(std::move(form));
  }
  REQUIRE(trunks.size() == 3);
  return all;
}

void check_states(std::int64_t channels, std::int64_t keys, std::int64_t frames,
                  const std::vector<std::int64_t>& batches) {
  int turn = 0;
  for (const PolicyForm& form : forms_of_states(channels, keys)) {
    const Precision states = ++turn % 2 == 0 ? Precision::bf16 : Precision::f16;
    for (const Precision precision : {Precision::f32, Precision::tf32x3}) {
      INFO(form.name << ", states " << core::precision_name(states) << ", "
                     << core::precision_name(precision));
      const Weights weights = stored(*form.weights, states, precision);
      const auto policy = load_on_device(weights, 400);
      check_policy_form(*policy, *weights, frames, batches);
      const CaughtError refused =
          error_of([&] { policy->armed_step(core::Policy::Frames::one_after_another); });
      CHECK(refused.says(precision == Precision::f32 ? "16 bits" : ":tf32x3"));
      CHECK(policy->on_device());
    }
  }
}

std::vector<std::shared_ptr<core::Policy>> policies_of_states() {
  PolicySpec spec;
  const Weights mamba1 = make_policy(spec);
  const Weights mamba2 = head_forms(6, 5).front().weights;
  std::vector<std::shared_ptr<core::Policy>> all;
  all.push_back(load_on_device(mamba1, 400));
  all.push_back(load_on_device(stored(*mamba1, Precision::f16), 400));
  REQUIRE(mamba2->config.d_input == mamba1->config.d_input);
  all.push_back(load_on_device(stored(*mamba2, Precision::bf16), 400));
  return all;
}

}  // namespace

TEST_CASE("what states of 16 bits are", "[cuda][policy][states]") {
  PolicySpec spec;
  const auto weights = make_policy(spec);
  const Weights f16 = stored(*weights, Precision::f16), bf16 = stored(*weights, Precision::bf16);
  CHECK(f16->fingerprint != weights->fingerprint);
  CHECK(f16->fingerprint != bf16->fingerprint);
  CHECK(core::with_states(*weights, Precision::f32).fingerprint == weights->fingerprint);
  const CaughtError bad = error_of([&] { core::with_states(*weights, Precision::int8); });
  CHECK(bad.kind == core::ErrorKind::invalid_argument);
  CHECK(bad.argument == ":states");
  const Weights gru = make_gated(GatedSpec{});
  const CaughtError none = error_of([&] { core::with_states(*gru, Precision::f16); });
  CHECK(none.kind == core::ErrorKind::invalid_argument);
  CHECK(none.says(gru->config.trunk));

  // Of a layer's state only the scan's is smaller; what is read back is what was rounded.
  const cuda::PolicyDims narrow(f16->config), wide(weights->config);
  const core::Network& n = weights->network();
  std::int64_t matrix = 0;
  for (const core::StatePart& part : n.states) matrix += part.name == "ssm" ? part.size() : 0;
  REQUIRE(matrix > 0);
  CHECK(narrow.network().state_floats() < wide.network().state_floats());
  std::vector<float> values = Random(3).vector(static_cast<std::size_t>(n.state_floats()), -9, 9);
  values[0] = 1e6f, values[1] = -1e6f, values[2] = 65519.0f;
  std::vector<float> packed(static_cast<std::size_t>(narrow.network().state_floats())), back(values.size());
  cuda::pack_state(narrow, values.data(), packed.data());
  cuda::unpack_state(narrow, packed.data(), back.data());
  std::int64_t at = 0;
  bool right = true;
  for (const core::StatePart& part : n.states) {
    for (std::int64_t i = 0; i < part.size(); ++i, ++at) {
      const auto place = static_cast<std::size_t>(at);
      const float limited = std::clamp(values[place], -65504.0f, 65504.0f);
      const float expected = part.name == "ssm" ? core::f16_to_f32(core::f32_to_f16(limited)) : values[place];
      right = right && back[place] == expected;
    }
  }
  CHECK(right);
}

TEST_CASE("states of 16 bits on an emulated GPU", "[.emulated_states]") {
  emulate_launches();
  check_states(24, 16, 9, {2, 33});
  CHECK(emulated_launches("policy_advance_batch") > 0);
  CHECK(emulated_launches("policy_heads_time") > 0);
  CHECK(emulated_launches("policy_step") == 0);
}

TEST_CASE("random operations of sessions with states of 16 bits on an emulated GPU",
          "[.emulated_states_sessions]") {
  emulate_launches();
  check_random_sessions(policies_of_states(), session_operations(96), 5);
}

TEST_CASE("states of 16 bits run without a GPU", "[cuda][policy][emulated][states]") {
  require_emulated("[.emulated_states]");
  require_emulated("[.emulated_states_sessions]");
}

TEST_CASE("states of 16 bits on the GPU", "[cuda][gpu][policy][states]") {
  if (!have_device()) return;
  check_states(24, 16, 40, {2, 70, 300});
  check_states(23, 5, 40, {9});
}

TEST_CASE("random operations of sessions with states of 16 bits on the GPU", "[cuda][gpu][policy][states]") {
  if (have_device()) check_random_sessions(policies_of_states(), session_operations(4000), 5);
}

// What docs/reference.md says of the match.
TEST_CASE("the match with states of 16 bits on the GPU", "[cuda][gpu][policy][states]") {
  if (!have_device() || !have_melee()) return;
  const Match match = melee_match();
  for (const auto& [states, bound] : {std::pair(Precision::f16, 2e-3), std::pair(Precision::bf16, 0.2)}) {
    const Weights weights = stored(*melee_policy(), states);
    const auto policy = load_on_device(weights, 16);
    const auto state = policy->new_state();
    const std::int64_t d_output = match.d_output;
    const std::int64_t frames = match.frames;
    std::vector<float> out(static_cast<std::size_t>(frames * d_output));
    policy->prefill(*state, match.obs.data(), frames, out.data());
    double worst = 0, squares = 0;
    for (std::int64_t t = 0; t < frames; ++t) {
      const double error = relative_error(out.data() + t * d_output, match.logits.data() + t * d_output,
                                          static_cast<std::size_t>(d_output));
      worst = std::max(worst, error), squares += error * error;
    }
    CAPTURE(core::precision_name(states));
    WARN("states " << core::precision_name(states) << ": worst frame " << worst << ", mean "
                   << std::sqrt(squares / static_cast<double>(frames)));
    CHECK(worst <= bound);
    CHECK(worst > 1e-5);
  }
}

}  // namespace exphil::test
