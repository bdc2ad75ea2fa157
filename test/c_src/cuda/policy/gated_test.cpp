// Policies of gated cells (GRU, LSTM, minGRU, minLSTM) on a GPU: every call, against the reference and bit by
// bit, and against what Axon answered.
#include <string>
#include <utility>
#include <vector>

#include "core/policy/rounding.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/forms_on_device.hpp"
#include "cuda/policy/gated_specs.hpp"
#include "cuda/policy/gradient_on_device.hpp"
#include "support/case_sample.hpp"

namespace exphil::test {
namespace {

using Weights = std::shared_ptr<const core::PolicyWeights>;

TEST_CASE("gated policies on an emulated GPU", "[.emulated_gated]") {
  emulate_launches();
  for (const GatedSpec& spec : gated_specs()) {
    INFO(spec.architecture << " " << spec.d_input);
    check_on_device(make_gated(spec), 9, {2, 5});
  }
  check_on_device(gated_with_product(), 9, {2});
  CHECK(emulated_launches("policy_cell_batch") > 0);
  CHECK(emulated_launches("policy_cell_frame") > 0);
  CHECK(emulated_launches("policy_cell_time") > 0);
  CHECK(emulated_launches("policy_step") > 0);
}

TEST_CASE("precisions of gated policies on an emulated GPU", "[.emulated_gated_precision]") {
  emulate_launches();
  for (const auto& [spec, precision] : {std::pair(spec_of("gru", 70, 34), core::Precision::int8),
                                        std::pair(spec_of("lstm", 9, 34), core::Precision::bf16),
                                        std::pair(spec_of("min_gru", 9, 34), core::Precision::f16)}) {
    INFO(core::precision_name(precision));
    check_on_device(
        std::make_shared<core::PolicyWeights>(core::rounded_weights(*make_gated(spec), precision)), 9, {3});
  }
}

TEST_CASE("random operations of sessions of gated policies on the GPU",
          "[cuda][gpu][policy][rollback][sessions][gated]") {
  if (!have_device()) return;
  GatedSpec spec;
  spec.d_input = 9, spec.window = 6;
  check_random_sessions_on_device(gated_forms(spec));
}

// The windows that Axon answered.
void check_recorded(const RecordedTrunk& set, std::int64_t windows) {
  INFO(set.name);
  const Weights weights = set.load();
  const auto policy = load_on_device(weights, 16);
  const std::vector<float> frames = set.io("windows"), expected = set.io("logits_batch1");
  const auto outputs = static_cast<std::size_t>(windows * weights->config.d_output);
  std::vector<float> found(outputs);
  policy->window(frames.data(), windows, set.seq, found.data());
  CHECK(relative_error(found.data(), expected.data(), outputs) < 1e-5);
}

TEST_CASE("recorded gated policies on an emulated GPU", "[.emulated_gated_recorded]") {
  emulate_launches();
  for (const RecordedTrunk& set : recorded_trunks()) {
    if (set.seq == 20) check_recorded(set, 2);
  }
}

TEST_CASE("gated policies run without a GPU", "[cuda][policy][emulated][gated]") {
  require_emulated("[.emulated_gated]");
}

TEST_CASE("steps of gated policies by teams of blocks run without a GPU",
          "[cuda][policy][emulated][step_teams][gated]") {
  require_emulated_teams({"[.emulated_gated]", "[.emulated_gated_precision]"}, ",walk_team=4");
}

TEST_CASE("gated policies in several precisions run without a GPU", "[cuda][policy][emulated][gated]") {
  require_emulated("[.emulated_gated_precision]");
}

TEST_CASE("recorded gated policies run without a GPU", "[cuda][policy][emulated][gated][exphil]") {
  if (!have_trunks()) return;
  require_emulated("[.emulated_gated_recorded]");
}

// From the state of a new agent, which a file may give, and from given states.
void check_gradient(const Weights& weights, std::int64_t batch, const std::vector<std::int64_t>& lengths) {
  const PolicyGrad grad = gradient_on_device(weights);
  for (const std::int64_t seq : lengths) {
    for (const bool with_state : {false, true}) {
      CAPTURE(seq, with_state);
      check_policy_grad(grad, *weights, policy_grad_case(weights->config, batch, seq, with_state));
    }
  }
}

void check_gradient_bits(const Weights& weights, std::int64_t batch, std::int64_t seq) {
  const PolicyGrad grad = gradient_on_device(weights);
  check_policy_grad_bits(grad, *weights, policy_grad_case(weights->config, batch, seq, true));
  check_policy_grad_nan(grad, *weights, seq);
}

TEST_CASE("gradients of gated policies on an emulated GPU", "[.emulated_gated_gradient]") {
  emulate_launches();
  for (const NamedPolicy& policy : small_gated_policies()) {
    CAPTURE(policy.name);
    check_gradient(policy.weights, 3, {1, 9});
  }
  check_gradient(gated_with_product(), 2, {4});
  check_gradient_bits(make_gated(spec_of("lstm", 41, 34)), 5, 5);
  CHECK(emulated_launches("policy_gradient_copy") == 0);
  // Rows of 41 values are copied to multiples of 16 bytes, but not those of a sequence alone.
  const auto odd = make_gated(spec_of("gru", 41, 172));
  const PolicyGradCase many = policy_grad_case(odd->config, 11, 47, false);
  check_policy_grad(gradient_on_device(odd), *odd, many);
  check_policy_grad_bits(gradient_on_device(odd), *odd, many);
  CHECK(emulated_launches("policy_gradient_copy") > 0);
  CHECK(emulated_launches("recurrent_walk_back") > 0);
  CHECK(emulated_launches("recurrent_units_back") > 0);
}

TEST_CASE("gradients of gated policies by clusters on an emulated GPU",
          "[.emulated_gated_cluster_gradient]") {
  emulate_launches();
  for (const GatedSpec& spec : {spec_of("gru", 9, 34), spec_of("lstm", 41, 34)}) {
    CAPTURE(spec.architecture);
    check_gradient(make_gated(spec), 3, {5});
  }
  check_gradient_bits(make_gated(spec_of("gru", 70, 34, true)), 3, 4);
}

TEST_CASE("the gradient of gated policies runs without a GPU", "[cuda][policy][gradient][emulated][gated]") {
  require_emulated("[.emulated_gated_gradient]");
}

TEST_CASE("the gradient of gated policies by clusters runs without a GPU",
          "[cuda][policy][gradient][emulated][gated]") {
  require_emulated("[.emulated_gated_cluster_gradient]", {{"FAKE_CUDA_CAPABILITY", "90"}});
}

TEST_CASE("the gradient of gated policies on the GPU", "[cuda][gpu][policy][gradient][gated]") {
  if (!have_device()) return;
  for (const NamedPolicy& policy : small_gated_policies()) {
    CAPTURE(policy.name);
    check_gradient(policy.weights, 3, {1, 2, 7, 8, 9, 33});
  }
  for (const GatedSpec& spec : gated_specs()) {
    CAPTURE(spec.architecture, spec.d_input);
    check_gradient(make_gated(spec), 9, {31});
    // More rows than one group of sequences takes.
    check_gradient_bits(make_gated(spec), 15, 300);
  }
  check_gradient(gated_with_product(), 40, {12});
  for (const char* architecture : {"gru", "lstm"}) {
    CAPTURE(architecture);
    GatedSpec wide = spec_of(architecture, 287, 256);
    check_gradient(make_gated(wide), 5, {20});
    check_gradient_bits(make_gated(wide), 32, 60);
  }
}

TEST_CASE("the gradient of recorded gated policies on the GPU",
          "[cuda][gpu][policy][gradient][gated][exphil]") {
  if (!have_device() || !have_trunks()) return;
  for (const RecordedTrunk& set : recorded_trunks()) {
    INFO(set.name);
    const Weights weights = set.load();
    PolicyGradCase c = policy_grad_case(weights->config, 2, set.seq, false);
    const std::vector<float> windows = set.io("windows");
    std::copy_n(windows.begin(), c.frames.size(), c.frames.begin());
    check_policy_grad(gradient_on_device(weights), *weights, c, 5e-5);
  }
}

TEST_CASE("gated policies on the GPU", "[cuda][gpu][policy][gated]") {
  if (!have_device()) return;
  CaseSample cases;
  for (GatedSpec spec : gated_specs()) {
    if (!cases.take()) continue;
    INFO(spec.architecture << " " << spec.d_input);
    check_on_device(make_gated(spec), 40, {2, 9, 300});
  }
  if (cases.take()) check_on_device(gated_with_product(), 40, {2, 9});
}

TEST_CASE("gated policies in every precision on the GPU", "[cuda][gpu][policy][gated][precision]") {
  if (!have_device()) return;
  check_rounded_on_device(gated_network_forms());
}

TEST_CASE("recorded gated policies on the GPU", "[cuda][gpu][policy][gated][exphil]") {
  if (!have_device() || !have_trunks()) return;
  for (const RecordedTrunk& set : recorded_trunks()) check_recorded(set, 8);
}

// One of them is of the size that is played.
TEST_CASE("recorded gated policies in every call on the GPU", "[cuda][gpu][policy][gated][exphil]") {
  if (!have_device() || !have_trunks()) return;
  CaseSample cases;
  for (const RecordedTrunk& set : recorded_trunks()) {
    if (!cases.take()) continue;
    INFO(set.name);
    const Weights weights = set.load();
    check_policy_form(*load_on_device(weights, 1200), *weights, 70, {2, 33, 1030});
  }
}

}  // namespace
}  // namespace exphil::test
