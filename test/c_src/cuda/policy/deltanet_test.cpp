// Gated DeltaNet policies on a GPU: every call, against the reference and bit by bit, and against what was
// recorded.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/policy/rounding.hpp"
#include "cuda/policy/heads_checks.hpp"
#include "support/gated_policy.hpp"
#include "support/precision_checks.hpp"

namespace exphil::test {
namespace {

// Of two heads, and of one without a projection and without a convolution's history.
std::vector<PolicyForm> deltanet_forms(std::int64_t channels, std::int64_t window = 0) {
  std::vector<PolicyForm> all;
  for (PolicyForm& form : head_forms(channels, 1, 2, window)) {
    if (form.weights->config.trunk == "gated_deltanet") all.push_back(std::move(form));
  }
  return all;
}

// Keys that fill their lanes, and odd ones.
Weights three_heads() {
  DeltanetSpec spec;
  spec.units = 96, spec.heads = 3;
  return load_policy(deltanet_file(spec));
}
Weights odd_heads() {
  DeltanetSpec spec;
  spec.units = spec.d_input = 70, spec.heads = 2, spec.taps = 1, spec.projects = false;
  return load_policy(deltanet_file(spec));
}

// Frames that begin each window, played one by one, and the windows as they were recorded.
void check_recorded(std::int64_t windows) {
  const RecordedTrunk set{"gated_deltanet_e32_h32_w20", 20};
  const Weights weights = set.load();
  const auto policy = load_on_device(weights, 16);
  const std::vector<float> frames = set.io("windows"), expected = set.io("logits_batch1");
  const auto outputs = static_cast<std::size_t>(weights->config.d_output);
  std::vector<float> found(static_cast<std::size_t>(windows) * outputs), stepped(found.size());
  policy->window(frames.data(), windows, set.seq, found.data());
  CHECK(relative_error(found.data(), expected.data(), found.size()) <= 1e-5);
  for (std::int64_t i = 0; i < windows; ++i) {
    const auto state = policy->new_state();
    core::State* const one = state.get();
    for (std::int64_t t = 0; t < set.seq; ++t) {
      policy->step(&one, 1, frames.data() + (i * set.seq + t) * weights->config.d_input,
                   stepped.data() + static_cast<std::size_t>(i) * outputs);
    }
  }
  CHECK(stepped == found);
}

TEST_CASE("gated DeltaNet on an emulated GPU", "[.emulated_deltanet]") {
  emulate_launches();
  const Weights odd =
      std::make_shared<core::PolicyWeights>(core::rounded_weights(*odd_heads(), core::Precision::int8));
  for (const Weights& weights : {three_heads(), odd}) {
    CAPTURE(weights->config.state_floats());
    check_on_device(weights, 9, {2, 5});
  }
  for (const char* entry :
       {"policy_heads_batch", "policy_heads_time", "policy_gate", "policy_diagonal", "policy_step"}) {
    INFO(entry);
    CHECK(emulated_launches(entry) > 0);
  }
}

TEST_CASE("recorded gated DeltaNet on an emulated GPU", "[.emulated_deltanet_recorded]") {
  emulate_launches();
  check_recorded(2);
}

// Segments of time with an end, tiles of rows with an end, keys that do not fill their lanes.
TEST_CASE("gradients of gated DeltaNet on an emulated GPU", "[.emulated_deltanet_gradient]") {
  emulate_launches();
  check_gradient(deltanet_forms(5)[0].weights, 3, {1, 18});
  check_gradient(deltanet_forms(33)[1].weights, 2, {15});
  check_gradient_bits(deltanet_forms(33)[1].weights, 3, 4);
  for (const char* entry : {"policy_gradient_heads_back", "policy_gradient_sigmoid_back",
                            "policy_gradient_means_back", "policy_gradient_norm_of_parts_back"}) {
    INFO(entry);
    CHECK(emulated_launches(entry) > 0);
  }
}

TEST_CASE("the gradient of gated DeltaNet runs without a GPU",
          "[cuda][policy][gradient][emulated][heads][deltanet]") {
  require_emulated("[.emulated_deltanet_gradient]");
}

TEST_CASE("the gradient of gated DeltaNet on the GPU", "[cuda][gpu][policy][gradient][heads][deltanet]") {
  if (!have_device()) return;
  CaseSample cases;
  for (const std::int64_t channels : {5, 33, 64, 128}) {
    for (const PolicyForm& form : deltanet_forms(channels)) {
      if (!cases.take()) continue;
      CAPTURE(form.name, channels);
      check_gradient(form.weights, 3, {1, 15, 16, 17, 33});
      check_gradient_bits(form.weights, 15, 300);
    }
  }
}

TEST_CASE("the gradient of the recorded gated DeltaNet on the GPU",
          "[cuda][gpu][policy][gradient][heads][deltanet][exphil]") {
  if (!have_device() || !have_trunks()) return;
  const RecordedTrunk set{"gated_deltanet_e32_h32_w20", 20};
  const Weights weights = set.load();
  PolicyGradCase c = policy_grad_case(weights->config, 2, set.seq, false);
  const std::vector<float> windows = set.io("windows");
  std::copy_n(windows.begin(), c.frames.size(), c.frames.begin());
  check_policy_grad(gradient_on_device(weights), *weights, c, 5e-5);
}

TEST_CASE("gated DeltaNet runs without a GPU", "[cuda][policy][emulated][heads][deltanet]") {
  require_emulated("[.emulated_deltanet]");
}

// Blocks have parts of one head and of several; the last one of some has no channel.
TEST_CASE("steps of gated DeltaNet by teams of blocks run without a GPU",
          "[cuda][policy][emulated][step_teams][heads][deltanet]") {
  require_emulated_teams({"[.emulated_deltanet]"});
}

TEST_CASE("recorded gated DeltaNet runs without a GPU", "[cuda][policy][emulated][heads][deltanet][exphil]") {
  if (!have_trunks()) return;
  require_emulated("[.emulated_deltanet_recorded]");
}

TEST_CASE("gated DeltaNet on the GPU", "[cuda][gpu][policy][heads][deltanet]") {
  if (!have_device()) return;
  CaseSample cases;
  for (const std::int64_t channels : {24, 23, 64, 33, 3, 128}) {
    for (const PolicyForm& form : deltanet_forms(channels)) {
      if (!cases.take()) continue;
      INFO(form.name << ", " << channels);
      check_on_device(form.weights, 40, {2, 9, 300});
    }
  }
}

// Of the size that is played.
TEST_CASE("a large gated DeltaNet on the GPU", "[cuda][gpu][policy][heads][deltanet]") {
  if (!have_device()) return;
  DeltanetSpec spec;
  spec.d_input = 287, spec.units = 256, spec.heads = 4;
  check_on_device(load_policy(deltanet_file(spec)), 70, {2, 33, 1030});
}

TEST_CASE("gated DeltaNet in every precision on the GPU", "[cuda][gpu][policy][heads][deltanet][precision]") {
  if (!have_device()) return;
  check_rounded_on_device(deltanet_forms(24));
}

TEST_CASE("random operations of sessions of gated DeltaNet on the GPU",
          "[cuda][gpu][policy][rollback][sessions][heads][deltanet]") {
  if (!have_device()) return;
  check_random_sessions_on_device(deltanet_forms(9, 6));
}

TEST_CASE("recorded gated DeltaNet on the GPU", "[cuda][gpu][policy][heads][deltanet][exphil]") {
  if (!have_device() || !have_trunks()) return;
  check_recorded(8);
}

}  // namespace
}  // namespace exphil::test
