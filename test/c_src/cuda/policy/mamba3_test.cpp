// Mamba-3 policies on a GPU, SISO and MIMO: every call, against the reference and bit by bit, and against
// what was recorded.
#include <string>
#include <utility>
#include <vector>

#include "core/policy/rounding.hpp"
#include "cuda/policy/heads_checks.hpp"
#include "support/precision_checks.hpp"

namespace exphil::test {
namespace {

// What f32 costs: angles add up over the frames, and keys and states turn with them.
constexpr double kStates = 5e-5;
// A norm of a head's few channels divides by what the recurrence has left of them: those of f32 on the CPU
// are as far off.
constexpr double kGradients = 1e-4;

TEST_CASE("Mamba-3 on an emulated GPU", "[.emulated_mamba3]") {
  emulate_launches();
  // Keys that fill their lanes, and odd ones; the rows of some have no block of the team.
  std::vector<PolicyForm> forms = mamba3_forms(24, 16), odd = mamba3_forms(23, 5);
  forms.push_back(odd[1]), forms.push_back(odd[4]);
  for (const PolicyForm& form : forms) {
    INFO(form.name << ", " << form.weights->config.state_floats() << " floats of a state");
    check_on_device(form.weights, 9, {2, 5});
  }
  for (const char* entry : {"policy_heads_batch", "policy_heads_time", "policy_gate", "policy_step",
                            "policy_angle", "policy_rotation", "policy_delay"}) {
    INFO(entry);
    CHECK(emulated_launches(entry) > 0);
  }
}

TEST_CASE("precisions of Mamba-3 on an emulated GPU", "[.emulated_mamba3_precision]") {
  emulate_launches();
  const std::vector<PolicyForm> forms = mamba3_forms(24, 16);
  for (const auto& [form, precision] :
       {std::pair(std::size_t{0}, core::Precision::int8), std::pair(std::size_t{2}, core::Precision::bf16),
        std::pair(std::size_t{4}, core::Precision::f16)}) {
    INFO(forms[form].name << " " << core::precision_name(precision));
    check_on_device(
        std::make_shared<core::PolicyWeights>(core::rounded_weights(*forms[form].weights, precision)), 9,
        {3});
  }
}

TEST_CASE("recorded Mamba-3 on an emulated GPU", "[.emulated_mamba3_recorded]") {
  emulate_launches();
  for (const char* name : {"mamba3_siso_norm", "mamba3_mimo_norm"}) check_recorded_heads(name, kStates);
}

// Segments of time with an end, tiles of rows with an end, keys that do not fill their lanes.
TEST_CASE("gradients of Mamba-3 on an emulated GPU", "[.emulated_mamba3_gradient]") {
  emulate_launches();
  for (const PolicyForm& form : mamba3_forms(5, 4)) {
    CAPTURE(form.name);
    check_gradient(form.weights, 3, {18}, kGradients);
  }
  const std::vector<PolicyForm> wide = mamba3_forms(23, 33);
  check_gradient(wide[1].weights, 2, {1, 5}, kGradients);
  check_gradient(wide[4].weights, 3, {15}, kGradients);
  check_gradient_bits(wide[4].weights, 3, 4);
  for (const char* name : {"mamba3_siso_norm", "mamba3_mimo_norm"}) {
    if (have_mamba23()) check_recorded_gradient(name);
  }
  for (const char* entry :
       {"policy_gradient_heads_back", "policy_gradient_angle_back", "policy_gradient_rotation_back",
        "policy_gradient_delay_back", "policy_gradient_ranks_back", "policy_gradient_coefficients_back"}) {
    INFO(entry);
    CHECK(emulated_launches(entry) > 0);
  }
}

TEST_CASE("the gradient of Mamba-3 runs without a GPU", "[cuda][policy][gradient][emulated][heads][mamba3]") {
  require_emulated("[.emulated_mamba3_gradient]");
}

TEST_CASE("the gradient of Mamba-3 on the GPU", "[cuda][gpu][policy][gradient][heads][mamba3]") {
  if (!have_device()) return;
  CaseSample cases;
  for (const auto& [channels, keys] : {std::pair(5, 4), std::pair(23, 33), std::pair(64, 64)}) {
    for (const PolicyForm& form : mamba3_forms(channels, keys)) {
      if (!cases.take()) continue;
      CAPTURE(form.name, channels, keys);
      check_gradient(form.weights, 3, {15, 16, 17, 33}, kGradients);
      check_gradient_bits(form.weights, 15, 300);
    }
  }
}

TEST_CASE("the recorded gradients of Mamba-3 on the GPU", "[cuda][gpu][policy][gradient][heads][mamba3]") {
  if (!have_device() || !have_mamba23()) return;
  for (const std::string& name : recorded_of(true)) check_recorded_gradient(name);
}

TEST_CASE("Mamba-3 runs without a GPU", "[cuda][policy][emulated][heads][mamba3]") {
  require_emulated("[.emulated_mamba3]");
}

// More blocks than the policies have segments of rows: the last one has none. Blocks have parts of a head,
// and parts of several.
TEST_CASE("steps of Mamba-3 by teams of blocks run without a GPU",
          "[cuda][policy][emulated][step_teams][heads][mamba3]") {
  require_emulated_teams({"[.emulated_mamba3]", "[.emulated_mamba3_precision]"});
}

TEST_CASE("Mamba-3 in several precisions runs without a GPU", "[cuda][policy][emulated][heads][mamba3]") {
  require_emulated("[.emulated_mamba3_precision]");
}

TEST_CASE("recorded Mamba-3 runs without a GPU", "[cuda][policy][emulated][heads][mamba3]") {
  if (!have_mamba23()) return;
  require_emulated("[.emulated_mamba3_recorded]");
}

TEST_CASE("Mamba-3 on the GPU", "[cuda][gpu][policy][heads][mamba3]") {
  if (!have_device()) return;
  CaseSample cases;
  for (const auto& [channels, keys] :
       {std::pair(24, 16), std::pair(23, 5), std::pair(64, 64), std::pair(33, 128), std::pair(3, 2)}) {
    for (const PolicyForm& form : mamba3_forms(channels, keys)) {
      if (!cases.take()) continue;
      INFO(form.name << ", " << channels << ", " << keys);
      check_on_device(form.weights, 40, {2, 9, 300});
    }
  }
}

// Of the size that is played.
TEST_CASE("a large Mamba-3 on the GPU", "[cuda][gpu][policy][heads][mamba3]") {
  if (!have_device()) return;
  Mamba3Spec spec;
  spec.d_input = 287, spec.d_output = 64, spec.d_model = 256, spec.heads = 8, spec.headdim = 64;
  CaseSample cases;
  for (const std::int64_t state : {64, 128}) {
    for (const std::int64_t ranks : {0, 4}) {
      if (!cases.take()) continue;
      CAPTURE(state, ranks);
      spec.d_state = state, spec.angles = state / 4;
      spec.mimo = spec.norm = ranks > 0, spec.ranks = std::max<std::int64_t>(ranks, 1);
      check_on_device(load_policy(mamba3_file(spec)), 70, {2, 33, 1030});
    }
  }
}

TEST_CASE("Mamba-3 in every precision on the GPU", "[cuda][gpu][policy][heads][mamba3][precision]") {
  if (!have_device()) return;
  check_rounded_on_device(mamba3_forms(24, 16));
}

TEST_CASE("random operations of sessions of Mamba-3 on the GPU",
          "[cuda][gpu][policy][rollback][sessions][heads][mamba3]") {
  if (!have_device()) return;
  check_random_sessions_on_device(mamba3_forms(9, 6, 2, 6));
}

TEST_CASE("recorded Mamba-3 on the GPU", "[cuda][gpu][policy][heads][mamba3]") {
  if (!have_device() || !have_mamba23()) return;
  for (const std::string& name : recorded_of(true)) check_recorded_heads(name, kStates);
}

}  // namespace
}  // namespace exphil::test
