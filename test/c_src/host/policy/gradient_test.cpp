// The gradient of a policy on the CPU against the oracle, and its bits.

#include <algorithm>
#include <limits>
#include <vector>

#include "core/work/parallel.hpp"
#include "host/policy/gradient_sums.hpp"
#include "host/policy/policy.hpp"
#include "host/simd/kept_buffer.hpp"
#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/exphil_data.hpp"
#include "support/gated_policy.hpp"
#include "support/host_gradient.hpp"
#include "support/melee.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"

namespace exphil {

namespace {

using core::PolicyWeights;
using test::PolicyGradCase;
using Floats = std::vector<float>;

test::PolicyGradResult run(const PolicyWeights& weights, const PolicyGradCase& c, bool forward_only = false) {
  return test::run_policy_grad(test::on_host(weights), weights, c, forward_only);
}

void check_against_oracle(const PolicyWeights& weights, const PolicyGradCase& c, double tolerance) {
  test::check_policy_grad(test::on_host(weights), weights, c, tolerance);
}

// Sizes on both sides of a panel, several parts of channels, and heads wider than a panel.
test::PolicySpec wide_spec() {
  test::PolicySpec spec;
  spec.d_input = 19, spec.d_model = 33, spec.d_inner = 70, spec.d_state = 17, spec.dt_rank = 5,
  spec.d_output = 20;
  return spec;
}

// Leaves NaN in two blocks of every size that a call with few rows takes.
void spoil_kept_memory() {
  std::vector<host::KeptBuffer> blocks;
  for (std::int64_t floats = 1024; floats < 1 << 20; floats += floats / 8) {
    for (int i = 0; i < 2; ++i) {
      blocks.emplace_back(floats);
      std::fill_n(blocks.back().data(), floats, std::numeric_limits<float>::quiet_NaN());
    }
  }
}

}  // namespace

TEST_CASE("the host's gradient of a policy is the oracle's, on every SIMD target",
          "[host][policy][gradient]") {
  test::for_each_target([&] {
    INFO(host::simd_target());
    for (const test::NamedPolicy& policy : test::every_small_policy()) {
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

TEST_CASE("the gradient of policies with sizes of one", "[host][policy][gradient]") {
  using Spec = test::PolicySpec;
  for (const auto size : {&Spec::d_input, &Spec::d_output, &Spec::d_model, &Spec::d_inner, &Spec::d_state,
                          &Spec::d_conv, &Spec::dt_rank}) {
    Spec spec;
    spec.*size = 1;
    const auto policy = test::make_policy(spec);
    CAPTURE(spec.d_input, spec.d_output, spec.d_model, spec.d_inner, spec.d_state, spec.d_conv, spec.dt_rank);
    // The norm of one value has nearly no slope: little is left of what is subtracted there.
    const double tolerance = spec.d_model == 1 ? 1e-3 : 2e-5;
    check_against_oracle(*policy, test::policy_grad_case(policy->config, 3, 37, true), tolerance);
  }
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
  const test::PolicyGradResult alone = run(*policy, c);
  core::set_threads(0);
  for (int i = 0; i < 5; ++i) CHECK(test::same_bits(run(*policy, c), alone));
}

TEST_CASE("a gradient does not depend on what earlier calls left in its memory", "[host][policy][gradient]") {
  for (const test::NamedPolicy& policy : test::every_small_policy()) {
    CAPTURE(policy.name);
    for (const bool with_state : {false, true}) {
      spoil_kept_memory();
      check_against_oracle(*policy.weights, test::policy_grad_case(policy.weights->config, 3, 17, with_state),
                           2e-5);
    }
  }
}

TEST_CASE("outputs, states and the gradient of frames do not depend on the batch",
          "[host][policy][gradient]") {
  for (const test::NamedPolicy& policy : test::every_small_policy()) {
    CAPTURE(policy.name);
    // More rows than kGradientRows: two groups.
    test::check_policy_grad_bits(test::on_host(*policy.weights), *policy.weights,
                                 test::policy_grad_case(policy.weights->config, 9, 300, true));
  }
}

TEST_CASE("more sequences than have rows of sums at a time are added up in their order",
          "[host][policy][gradient]") {
  const auto policy = test::make_policy(wide_spec());
  const core::Network& network = policy->network();
  const PolicyGradCase c = test::policy_grad_case(policy->config, 700, 1, false);
  const host::GradientSums sums(*policy);
  std::int64_t most = 0;
  for (const host::BlockSums& block : sums.blocks) {
    for (const host::PhaseSums& phase : block.phases) most = std::max(most, phase.floats);
  }
  REQUIRE(c.batch * most > 2 * host::GradientSums::kRowFloats);
  const test::PolicyGradResult all = run(*policy, c);
  auto expected = core::zeros_of<float>(network);
  PolicyGradCase one = c;
  one.batch = 1;
  for (std::int64_t i = 0; i < c.batch; ++i) {
    one.frames.assign(c.frames.begin() + i * policy->config.d_input,
                      c.frames.begin() + (i + 1) * policy->config.d_input);
    one.d_outs.assign(c.d_outs.begin() + i * policy->config.d_output,
                      c.d_outs.begin() + (i + 1) * policy->config.d_output);
    const test::PolicyGradResult alone = run(*policy, one);
    for (std::size_t id = 0; id < expected.size(); ++id) {
      for (std::size_t k = 0; k < expected[id].size(); ++k) expected[id][k] += alone.weights[id][k];
    }
  }
  // Those of products are added up over 512 rows at a time, and those of A_log are made of A's.
  std::size_t compared = 0;
  for (const core::Phase* phase : core::phases_of(network)) {
    for (const host::PhaseWeight& weight : host::phase_weights(*phase)) {
      if (weight.id == core::kNone) continue;
      const auto id = static_cast<std::size_t>(weight.id);
      INFO("weight " << id);
      CHECK(test::same_bits(all.weights[id], expected[id]));
      ++compared;
    }
  }
  CHECK(compared >= 8);
}

TEST_CASE("NaN in one sequence leaves what belongs to the others the same bits", "[host][policy][gradient]") {
  const auto policy = test::make_policy(wide_spec());
  test::check_policy_grad_nan(test::on_host(*policy), *policy, 20);
}

TEST_CASE("the forward pass of the gradient is that of a session", "[host][policy][gradient]") {
  for (const test::NamedPolicy& policy : test::every_small_policy()) {
    CAPTURE(policy.name);
    const core::PolicyConfig& config = policy.weights->config;
    PolicyGradCase c = test::policy_grad_case(config, 1, 33, true);
    const test::PolicyGradResult forward = run(*policy.weights, c, true);
    const auto resident = host::make_policy(*policy.weights, {});
    const auto state = resident->new_state();
    resident->write_state(*state, c.states.data());
    Floats outs(forward.outs.size()), states(forward.states.size());
    resident->prefill(*state, c.frames.data(), c.seq, outs.data());
    resident->read_state(*state, states.data());
    CHECK(test::same_bits(outs, forward.outs));
    CHECK(test::same_bits(states, forward.states));
  }
}

}  // namespace exphil
