// The gradient of a policy on the CPU against the oracle, and its bits.
#include "host/policy/gradient.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/parallel.hpp"
#include "core/policy/gradient_reference.hpp"
#include "host/policy/policy.hpp"
#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/exphil_data.hpp"
#include "support/melee.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"
#include "support/policy_grad_case.hpp"

namespace exphil {

namespace {

using core::PolicyValues;
using core::PolicyWeights;
using test::PolicyGradCase;
using Floats = std::vector<float>;

struct Result {
  PolicyValues<float> weights;
  Floats frames, outs, ssm, conv;
};

Result run(const PolicyWeights& weights, const PolicyGradCase& c, bool forward_only = false) {
  const core::PolicyConfig& config = weights.config;
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  Result r;
  r.weights = core::zeros_like<float>(weights);
  r.frames.resize(c.frames.size());
  r.outs.resize(c.d_outs.size());
  r.ssm.resize(size(c.batch * config.ssm_floats()));
  r.conv.resize(size(c.batch * config.conv_floats()));
  core::PolicyGradOutputs outputs{&r.weights, r.frames.data(), r.outs.data(), r.ssm.data(), r.conv.data()};
  const Floats d_outs = c.d_outs_f32();
  host::policy_grad(weights, c.sequences(), forward_only ? nullptr : d_outs.data(), outputs);
  return r;
}

bool same_bits(const Floats& p, const Floats& q) {
  return p.size() == q.size() &&
         (p.empty() || std::memcmp(p.data(), q.data(), p.size() * sizeof(float)) == 0);
}

bool same_bits(const Result& p, const Result& q) {
  const auto left = core::vectors_of(p.weights), right = core::vectors_of(q.weights);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!same_bits(*left[i], *right[i])) return false;
  }
  return same_bits(p.frames, q.frames) && same_bits(p.outs, q.outs);
}

void check_against_oracle(const PolicyWeights& weights, const PolicyGradCase& c, double tolerance) {
  const Result found = run(weights, c);
  const auto expected =
      core::policy_grad_reference<float>(weights.config, weights, c.sequences(), c.d_outs.data());
  CHECK(test::relative_error(found.outs, expected.outs) <= tolerance);
  CHECK(test::relative_error(found.frames, expected.frames) <= tolerance);
  const auto values = core::vectors_of(found.weights);
  const auto right = core::vectors_of(expected.weights);
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CHECK(test::relative_error(*values[i], *right[i]) <= tolerance);
  }
}

// Sizes on both sides of a panel, several parts of channels, and heads wider than a panel.
test::PolicySpec wide_spec() {
  test::PolicySpec spec;
  spec.d_input = 19, spec.d_model = 33, spec.d_inner = 70, spec.d_state = 17, spec.dt_rank = 5,
  spec.d_output = 20;
  return spec;
}

// Sequences from `first` on, as a call of their own.
PolicyGradCase part_of(const PolicyGradCase& c, const core::PolicyConfig& config, std::int64_t first,
                       std::int64_t count) {
  const auto cut = [&](const auto& values, std::int64_t each) {
    using Values = std::decay_t<decltype(values)>;
    return values.empty() ? Values()
                          : Values(values.begin() + first * each, values.begin() + (first + count) * each);
  };
  PolicyGradCase part;
  part.batch = count, part.seq = c.seq;
  part.frames = cut(c.frames, c.seq * config.d_input);
  part.d_outs = cut(c.d_outs, c.seq * config.d_output);
  part.ssm = cut(c.ssm, config.ssm_floats());
  part.conv = cut(c.conv, config.conv_floats());
  if (!part.ssm.empty()) part.conv.push_back(0);
  return part;
}

}  // namespace

TEST_CASE("the host's gradient of a policy is the oracle's, on every SIMD target",
          "[host][policy][gradient]") {
  test::for_each_target([&] {
    INFO(host::simd_target());
    for (const test::NamedPolicy& policy : test::small_policies()) {
      CAPTURE(policy.name);
      for (const std::int64_t seq : {1, 2, 7, 16, 17, 37}) {
        CAPTURE(seq);
        for (const bool with_state : {false, true}) {
          check_against_oracle(*policy.weights,
                               test::policy_grad_case(policy.weights->config, 3, seq, with_state), 2e-5);
        }
      }
    }
    const auto wide = test::make_policy(wide_spec());
    check_against_oracle(*wide, test::policy_grad_case(wide->config, 2, 33, true), 2e-5);
  });
}

TEST_CASE("the gradient of the shared policy over the recorded match", "[host][policy][gradient][melee]") {
  if (!test::have_melee()) return;
  const auto policy = test::melee_policy();
  const test::Match match = test::melee_match();
  PolicyGradCase c = test::policy_grad_case(policy->config, 2, 60, false);
  std::copy_n(match.obs_at(600), c.frames.size(), c.frames.begin());
  check_against_oracle(*policy, c, 2e-5);
}

TEST_CASE("the gradient of Edifice's and ExPhil's policies", "[host][policy][gradient][exphil]") {
  if (!test::have_exphil()) return;
  for (const char* file :
       {"edifice_mamba/mamba.nx", "edifice_mamba2/short_window.nx", "exphil_policy/policy.bin"}) {
    CAPTURE(file);
    const auto policy = test::exphil_policy(file);
    PolicyGradCase c = test::policy_grad_case(policy->config, 1, 20, false);
    const Floats frames = test::exphil_frames();
    std::copy_n(frames.begin() + 200 * policy->config.d_input, c.frames.size(), c.frames.begin());
    check_against_oracle(*policy, c, 5e-5);
  }
}

TEST_CASE("a policy's gradient has the same bits in every run, with any number of threads",
          "[host][policy][gradient]") {
  const auto policy = test::make_policy(wide_spec());
  const PolicyGradCase c = test::policy_grad_case(policy->config, 5, 40, false);
  core::set_threads(1);
  const Result alone = run(*policy, c);
  core::set_threads(0);
  for (int i = 0; i < 5; ++i) CHECK(same_bits(run(*policy, c), alone));
}

TEST_CASE("outputs, states and the gradient of frames do not depend on the batch",
          "[host][policy][gradient]") {
  for (const test::NamedPolicy& policy : test::small_policies()) {
    CAPTURE(policy.name);
    const core::PolicyConfig& config = policy.weights->config;
    // More rows than kGradientRows: two groups.
    const std::int64_t seq = 300, batch = 9;
    const PolicyGradCase c = test::policy_grad_case(config, batch, seq, true);
    const Result together = run(*policy.weights, c);
    for (const std::int64_t b : {0, 5, 8}) {
      const Result one = run(*policy.weights, part_of(c, config, b, 1));
      const auto same = [&](const Floats& whole, const Floats& part) {
        return std::memcmp(whole.data() + b * static_cast<std::int64_t>(part.size()), part.data(),
                           part.size() * sizeof(float)) == 0;
      };
      CHECK(same(together.outs, one.outs));
      CHECK(same(together.frames, one.frames));
      CHECK(same(together.ssm, one.ssm));
      if (!one.conv.empty()) CHECK(same(together.conv, one.conv));
    }
    CHECK(same_bits(run(*policy.weights, c, true).outs, together.outs));
  }
}

TEST_CASE("NaN in one sequence leaves what belongs to the others the same bits", "[host][policy][gradient]") {
  const auto policy = test::make_policy(wide_spec());
  const core::PolicyConfig& config = policy->config;
  PolicyGradCase c = test::policy_grad_case(config, 3, 20, false);
  const Result sound = run(*policy, c);
  c.frames[static_cast<std::size_t>(20 * config.d_input + 7)] = std::numeric_limits<float>::quiet_NaN();
  const Result broken = run(*policy, c);
  const std::size_t each = static_cast<std::size_t>(20 * config.d_input);
  CHECK(std::memcmp(broken.frames.data(), sound.frames.data(), each * sizeof(float)) == 0);
  CHECK(std::memcmp(broken.frames.data() + 2 * each, sound.frames.data() + 2 * each, each * sizeof(float)) ==
        0);
  CHECK(std::isnan(broken.frames[each + 7]));
  CHECK(std::isnan(broken.weights.head[0]));
}

TEST_CASE("the forward pass of the gradient is that of a session", "[host][policy][gradient]") {
  for (const test::NamedPolicy& policy : test::small_policies()) {
    CAPTURE(policy.name);
    const core::PolicyConfig& config = policy.weights->config;
    PolicyGradCase c = test::policy_grad_case(config, 1, 33, true);
    const Result forward = run(*policy.weights, c, true);
    const auto resident = host::make_policy(*policy.weights, {});
    const auto state = resident->new_state();
    resident->write_state(*state, c.ssm.data(), c.conv.data());
    Floats outs(forward.outs.size()), ssm(forward.ssm.size()), conv(forward.conv.size() + 1);
    resident->prefill(*state, c.frames.data(), c.seq, outs.data());
    resident->read_state(*state, ssm.data(), conv.data());
    conv.pop_back();
    CHECK(same_bits(outs, forward.outs));
    CHECK(same_bits(ssm, forward.ssm));
    CHECK(same_bits(conv, forward.conv));
  }
}

}  // namespace exphil
