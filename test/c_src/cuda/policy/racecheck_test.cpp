// Policies that are small enough for compute-sanitizer's racecheck, which runs kernels thousands of times
// slower: two frames of one agent, one frame of three, and a window, against the reference. Hidden;
// .ci/sanitize_gpu runs it on a machine with a GPU, once for each shape of a team, which EXPHIL_NATIVE_POLICY
// chooses.
#include "core/policy/reference.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/gated_specs.hpp"
#include "cuda/policy/loader.hpp"
#include "support/catch.hpp"
#include "support/mamba3_policy.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"

namespace exphil {

namespace {

// Channels for a team of two blocks, more values of a row than a segment of 32 has, and two layers, so that
// every buffer is used again.
test::PolicySpec small_policy() {
  test::PolicySpec spec;
  spec.d_input = 5, spec.d_model = 40, spec.d_inner = 64, spec.n_layer = 2;
  spec.d_state = 8, spec.dt_rank = 3, spec.d_output = 4;
  return spec;
}

std::vector<double> expected_frame(const core::PolicyWeights& weights, core::PolicyReferenceState& state,
                                   const float* obs) {
  std::vector<double> out(static_cast<std::size_t>(weights.config.d_output));
  core::policy_reference_step(weights, state, obs, out.data());
  return out;
}

void check_small(const std::shared_ptr<const core::PolicyWeights>& weights) {
  const core::PolicyConfig& config = weights->config;
  core::PolicyOptions options;
  options.max_sessions = 4;
  const auto policy = cuda::load_policy(cuda::Context::open(0), weights, options);
  constexpr std::int64_t kAgents = 3;
  const std::vector<float> obs =
      test::Random(3).vector(static_cast<std::size_t>((2 + kAgents) * config.d_input), -1, 1);
  std::vector<float> out(static_cast<std::size_t>(kAgents * config.d_output));

  std::vector<std::unique_ptr<core::State>> states;
  std::vector<core::State*> all;
  for (std::int64_t i = 0; i < kAgents; ++i) {
    states.push_back(policy->new_state());
    all.push_back(states.back().get());
  }
  std::vector<core::PolicyReferenceState> references(kAgents, core::PolicyReferenceState(config));
  const auto outputs = static_cast<std::size_t>(config.d_output);
  for (std::int64_t frame = 0; frame < 2; ++frame) {
    const float* own = obs.data() + frame * config.d_input;
    policy->step(all.data(), 1, own, out.data());
    CHECK(test::relative_error(std::vector<float>(out.begin(), out.begin() + config.d_output),
                               expected_frame(*weights, references[0], own)) <= 1e-5);
  }
  policy->step(all.data(), kAgents, obs.data() + 2 * config.d_input, out.data());
  for (std::size_t i = 0; i < static_cast<std::size_t>(kAgents); ++i) {
    const float* own = obs.data() + (2 + static_cast<std::int64_t>(i)) * config.d_input;
    const std::vector<float> alone(out.begin() + static_cast<std::ptrdiff_t>(i * outputs),
                                   out.begin() + static_cast<std::ptrdiff_t>((i + 1) * outputs));
    CHECK(test::relative_error(alone, expected_frame(*weights, references[i], own)) <= 1e-5);
  }

  policy->window(obs.data(), 1, 2 + kAgents, out.data());
  std::vector<double> window(static_cast<std::size_t>((2 + kAgents) * config.d_output));
  core::policy_reference_window(*weights, obs.data(), 2 + kAgents, window.data());
  CHECK(test::relative_error(out.data(), window.data() + (1 + kAgents) * config.d_output, outputs) <= 1e-5);
}

}  // namespace

TEST_CASE("a small policy under racecheck: one agent, three in one call, and a window",
          "[.racecheck][shapes]") {
  if (!test::have_device()) return;
  check_small(test::make_policy(small_policy()));
}

TEST_CASE("small policies of gated cells under racecheck", "[.racecheck][shapes][gated]") {
  if (!test::have_device()) return;
  for (const char* architecture : {"gru", "lstm", "min_gru"}) {
    INFO(architecture);
    check_small(test::make_gated(test::spec_of(architecture, 9, 34)));
  }
}

TEST_CASE("small policies with a matrix state under racecheck", "[.racecheck][shapes][heads]") {
  if (!test::have_device()) return;
  for (const test::PolicyForm& form : test::matrix_forms(24, 8)) {
    INFO(form.name);
    check_small(form.weights);
  }
}

}  // namespace exphil
