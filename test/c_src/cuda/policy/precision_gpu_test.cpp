// The policy on a GPU in every precision: recorded traces against the float64 reference of the rounded
// weights, every form, same bits, memory. Skipped, with a line, where there is no device.
#include "core/policy/rounding.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "support/case_sample.hpp"
#include "support/catch.hpp"
#include "support/exphil_data.hpp"
#include "support/melee.hpp"
#include "support/policy_forms.hpp"
#include "support/precision_checks.hpp"

namespace exphil::test {

namespace {

std::shared_ptr<const core::PolicyWeights> rounded(const core::PolicyWeights& weights,
                                                   core::Precision precision) {
  return std::make_shared<core::PolicyWeights>(core::rounded_weights(weights, precision));
}

}  // namespace

TEST_CASE("every recorded trace of the match in every precision on the GPU",
          "[cuda][gpu][policy][precision]") {
  if (have_device() && have_melee()) check_melee_in_every_precision(load_64_on_device);
}

TEST_CASE("every policy of Edifice and ExPhil in every precision on the GPU",
          "[cuda][gpu][policy][exphil][precision]") {
  if (have_device() && have_exphil()) check_exphil_in_every_precision(load_64_on_device);
}

namespace {

void check_forms_in(core::Precision precision) {
  if (!have_device()) return;
  PolicySpec odd;
  odd.d_input = 15, odd.d_model = 67, odd.d_inner = 131, odd.d_state = 17, odd.dt_rank = 5;
  CaseSample cases;
  for (const PolicyForm& form : policy_forms(odd)) {
    if (!cases.take()) continue;
    INFO(form.name << " " << core::precision_name(precision));
    const auto weights = rounded(*form.weights, precision);
    check_policy_form(*load_64_on_device(weights), *weights, 20, {2, 9, 70});
  }
}

}  // namespace

// Apart, because a sanitizer takes minutes for each of them.
TEST_CASE("every form of a policy in bf16 on the GPU", "[cuda][gpu][policy][precision]") {
  check_forms_in(core::Precision::bf16);
}
TEST_CASE("every form of a policy in f16 on the GPU", "[cuda][gpu][policy][precision]") {
  check_forms_in(core::Precision::f16);
}
TEST_CASE("every form of a policy in int8 on the GPU", "[cuda][gpu][policy][precision]") {
  check_forms_in(core::Precision::int8);
}

TEST_CASE("every form of a policy in tf32x3 on the GPU", "[cuda][gpu][policy][precision]") {
  check_forms_in(core::Precision::tf32x3);
}
// By warpgroups, where a product has enough columns: the bits of the tensor cores' other instruction.
TEST_CASE("every form of a policy in tf32x3 by warpgroups on the GPU", "[cuda][gpu][policy][precision]") {
  const Environment variable("EXPHIL_NATIVE_POLICY", "wide_rows=2");
  check_forms_in(core::Precision::tf32x3);
}

TEST_CASE("a policy's memory on the GPU falls with its precision", "[cuda][gpu][policy][precision]") {
  if (!have_device() || !have_melee()) return;
  const auto bytes = [](core::Precision precision) {
    return load_64_on_device(rounded(*melee_policy(), precision))->resident_bytes();
  };
  const std::size_t f32 = bytes(core::Precision::f32), half = bytes(core::Precision::bf16);
  CHECK(f32 - half > 940'000 * 2 * 2);  // twice: for the step and for the row kernels
  CHECK(half - bytes(core::Precision::int8) > 900'000 * 2);
}

}  // namespace exphil::test
