// Mamba-2 policies on a GPU: every call, against the reference and bit by bit, and against what was recorded.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/policy/rounding.hpp"
#include "cuda/policy/heads_checks.hpp"
#include "support/precision_checks.hpp"

namespace exphil::test {
namespace {

std::vector<PolicyForm> mamba2_forms(std::int64_t channels, std::int64_t keys, std::int64_t window = 0) {
  std::vector<PolicyForm> all;
  for (PolicyForm& form : head_forms(channels, keys, 2, window)) {
    if (form.weights->config.trunk == "mamba2") all.push_back(std::move(form));
  }
  return all;
}

// The same, of which number `first` is the first: there are five, and a sample of the cases of several
// sizes then has another form of each.
std::vector<PolicyForm> mamba2_forms_from(std::ptrdiff_t first, std::int64_t channels, std::int64_t keys) {
  std::vector<PolicyForm> all = mamba2_forms(channels, keys);
  std::rotate(all.begin(), all.begin() + first, all.end());
  return all;
}

TEST_CASE("Mamba-2 on an emulated GPU", "[.emulated_heads]") {
  emulate_launches();
  // Keys that fill their lanes, and odd ones; the rows of some have no block of the team.
  for (const auto& [channels, keys] : {std::pair(24, 16), std::pair(23, 5)}) {
    for (const PolicyForm& form : mamba2_forms(channels, keys)) {
      INFO(form.name << ", " << channels << ", " << keys);
      check_on_device(form.weights, 9, {2, 5});
    }
  }
  CHECK(emulated_launches("policy_heads_batch") > 0);
  CHECK(emulated_launches("policy_heads_time") > 0);
  CHECK(emulated_launches("policy_gate") > 0);
  CHECK(emulated_launches("policy_step") > 0);
}

TEST_CASE("precisions of Mamba-2 on an emulated GPU", "[.emulated_heads_precision]") {
  emulate_launches();
  const std::vector<PolicyForm> forms = mamba2_forms(24, 16);
  for (const auto& [form, precision] :
       {std::pair(std::size_t{0}, core::Precision::int8), std::pair(std::size_t{1}, core::Precision::bf16),
        std::pair(std::size_t{3}, core::Precision::f16)}) {
    INFO(forms[form].name << " " << core::precision_name(precision));
    check_on_device(
        std::make_shared<core::PolicyWeights>(core::rounded_weights(*forms[form].weights, precision)), 9,
        {3});
  }
}

std::vector<std::string> recorded_mamba2() {
  return recorded_of(false);
}

TEST_CASE("recorded Mamba-2 on an emulated GPU", "[.emulated_heads_recorded]") {
  emulate_launches();
  for (const char* name : {"mamba2_grouped_small", "mamba2_dssm"}) check_recorded_heads(name);
}

// Segments of time with an end, tiles of rows with an end, keys that do not fill their lanes.
TEST_CASE("gradients of Mamba-2 on an emulated GPU", "[.emulated_heads_gradient]") {
  emulate_launches();
  for (const PolicyForm& form : mamba2_forms(3, 4)) {
    CAPTURE(form.name);
    check_gradient(form.weights, 3, {1, 15, 18});
  }
  const std::vector<PolicyForm> wide = mamba2_forms(23, 33);
  check_gradient(wide[0].weights, 2, {5});
  check_gradient(wide.back().weights, 3, {2, 15});
  check_gradient_bits(wide[1].weights, 3, 4);
  CHECK(emulated_launches("policy_gradient_heads_back") > 0);
  CHECK(emulated_launches("policy_gradient_gate_back") > 0);
  CHECK(emulated_launches("policy_gradient_norm_of_parts_back") > 0);
}

TEST_CASE("the gradient of Mamba-2 runs without a GPU", "[cuda][policy][gradient][emulated][heads]") {
  require_emulated("[.emulated_heads_gradient]");
}

TEST_CASE("the gradient of Mamba-2 on the GPU", "[cuda][gpu][policy][gradient][heads]") {
  if (!have_device()) return;
  CaseSample cases;
  std::ptrdiff_t first = 0;
  for (const auto& [channels, keys] : {std::pair(3, 4), std::pair(23, 33), std::pair(64, 64)}) {
    for (const PolicyForm& form : mamba2_forms_from(first++, channels, keys)) {
      if (!cases.take()) continue;
      CAPTURE(form.name, channels, keys);
      check_gradient(form.weights, 3, {1, 2, 15, 16, 17, 33});
      check_gradient_bits(form.weights, 15, 300);
    }
  }
}

TEST_CASE("the recorded gradients of Mamba-2 on the GPU", "[cuda][gpu][policy][gradient][heads][mamba2]") {
  if (!have_device() || !have_mamba23()) return;
  for (const std::string& name : recorded_mamba2()) {
    if (name == "mamba2_grouped") continue;  // has none
    check_recorded_gradient(name);
  }
}

TEST_CASE("Mamba-2 runs without a GPU", "[cuda][policy][emulated][heads]") {
  require_emulated("[.emulated_heads]");
}

// More blocks than the policies have segments of rows: the last one has none.
TEST_CASE("steps of Mamba-2 by teams of blocks run without a GPU",
          "[cuda][policy][emulated][step_teams][heads]") {
  require_emulated_teams({"[.emulated_heads]", "[.emulated_heads_precision]"});
}

TEST_CASE("Mamba-2 in several precisions runs without a GPU", "[cuda][policy][emulated][heads]") {
  require_emulated("[.emulated_heads_precision]");
}

TEST_CASE("recorded Mamba-2 runs without a GPU", "[cuda][policy][emulated][heads][mamba2]") {
  if (!have_mamba23()) return;
  require_emulated("[.emulated_heads_recorded]");
}

TEST_CASE("Mamba-2 on the GPU", "[cuda][gpu][policy][heads]") {
  if (!have_device()) return;
  CaseSample cases;
  std::ptrdiff_t first = 0;
  for (const auto& [channels, keys] :
       {std::pair(24, 16), std::pair(23, 5), std::pair(64, 64), std::pair(33, 128), std::pair(3, 1)}) {
    for (const PolicyForm& form : mamba2_forms_from(first++, channels, keys)) {
      if (!cases.take()) continue;
      INFO(form.name << ", " << channels << ", " << keys);
      check_on_device(form.weights, 40, {2, 9, 300});
    }
  }
}

// Of the size that is played.
TEST_CASE("a large Mamba-2 on the GPU", "[cuda][gpu][policy][heads]") {
  if (!have_device()) return;
  Mamba2Spec spec;
  spec.d_input = 287, spec.d_output = 64, spec.d_model = 256, spec.heads = 8, spec.headdim = 64;
  CaseSample cases;
  for (const std::int64_t state : {64, 128}) {
    if (!cases.take()) continue;
    CAPTURE(state);
    spec.d_state = state;
    check_on_device(load_policy(mamba2_file(spec)), 70, {2, 33, 1030});
  }
}

TEST_CASE("Mamba-2 in every precision on the GPU", "[cuda][gpu][policy][heads][precision]") {
  if (!have_device()) return;
  check_rounded_on_device(mamba2_forms(24, 16));
}

TEST_CASE("random operations of sessions of Mamba-2 on the GPU",
          "[cuda][gpu][policy][rollback][sessions][heads]") {
  if (!have_device()) return;
  check_random_sessions_on_device(mamba2_forms(9, 6, 6));
}

TEST_CASE("recorded Mamba-2 on the GPU", "[cuda][gpu][policy][heads][mamba2]") {
  if (!have_device() || !have_mamba23()) return;
  for (const std::string& name : recorded_mamba2()) check_recorded_heads(name);
}

}  // namespace
}  // namespace exphil::test
