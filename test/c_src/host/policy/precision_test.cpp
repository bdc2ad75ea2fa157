// The policy on the CPU in every precision: recorded traces against the float64 reference of the rounded
// weights, same bits, memory.
#include "core/policy/rounding.hpp"
#include "host/policy/policy.hpp"
#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/exphil_data.hpp"
#include "support/melee.hpp"
#include "support/policy.hpp"
#include "support/policy_forms.hpp"
#include "support/precision_checks.hpp"

namespace exphil {

namespace {

std::unique_ptr<core::Policy> make(const std::shared_ptr<const core::PolicyWeights>& weights) {
  return host::make_policy(*weights, {});
}

}  // namespace

TEST_CASE("every recorded trace of the match in every precision", "[host][policy][melee][precision]") {
  if (test::have_melee()) test::check_melee_in_every_precision(make);
}

TEST_CASE("every policy of Edifice and ExPhil in every precision", "[host][policy][exphil][precision]") {
  if (test::have_exphil()) test::check_exphil_in_every_precision(make);
}

TEST_CASE("sizes around the panels in every precision, on every SIMD target", "[host][policy][precision]") {
  test::PolicySpec odd, one, wide;
  odd.d_input = 15, odd.d_model = 17, odd.d_inner = 33, odd.d_state = 7, odd.projection_bias = true;
  one.d_input = one.d_output = one.d_model = one.d_inner = one.n_layer = one.d_state = one.d_conv = 1;
  one.dt_rank = 1;
  wide.d_input = 50, wide.d_model = 100, wide.d_inner = 200, wide.n_layer = 3, wide.d_output = 40;
  wide.dt_rank = 5;
  for (const core::Precision precision : test::kPrecisions) {
    for (const test::PolicySpec& spec : {odd, one, wide}) {
      const core::PolicyWeights weights = core::rounded_weights(*test::make_policy(spec), precision);
      test::for_each_target([&] {
        INFO(host::simd_target() << " " << core::precision_name(precision) << " d_model " << spec.d_model);
        const auto policy = host::make_policy(weights, {});
        test::check_policy_form(*policy, weights, 12, {2, 9, 70});
      });
    }
  }
}

TEST_CASE("a policy's memory falls with its precision", "[host][policy][precision]") {
  if (!test::have_melee()) return;
  const auto bytes = [](core::Precision precision) {
    const auto weights = core::rounded_weights(*test::melee_policy(), precision);
    return host::make_policy(weights, {})->resident_bytes();
  };
  const std::size_t f32 = bytes(core::Precision::f32), half = bytes(core::Precision::bf16);
  // 942,912 weights in matrices.
  CHECK(f32 - half > 940'000 * 2);
  CHECK(half - bytes(core::Precision::f16) < 1024);  // bf16 stores an even number of columns
  CHECK(half - bytes(core::Precision::int8) > 920'000);
}

}  // namespace exphil
