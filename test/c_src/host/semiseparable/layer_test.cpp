// The AR-SSM layer on the CPU against the double oracle, on every SIMD target.
#include "host/semiseparable/layer.hpp"

#include <array>
#include <cstring>

#include "core/work/parallel.hpp"
#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/semiseparable_case.hpp"

namespace exphil::test {
namespace {

TEST_CASE("the AR-SSM layer on the host agrees with the oracle") {
  for_each_target([] {
    for (const auto& [hidden, rank, inner] : {std::array<std::int64_t, 3>{1, 1, 1},
                                              {3, 2, 5},
                                              {16, 16, 16},
                                              {65, 17, 33},
                                              {256, 32, 64},
                                              {40, 1100, 7}}) {
      const SemiseparableTensors tensors(hidden, rank, inner);
      const auto weights = core::load_semiseparable(tensors.views(), true);
      const auto policy = host::make_semiseparable(*weights);
      for (const std::int64_t seq : {0, 1, 2, 3, 33, 130}) {
        for (const bool bidirectional : {false, true}) {
          CHECK(semiseparable_mismatch(*policy, *weights, 2, seq, bidirectional) == "");
        }
      }
    }
  });
}

TEST_CASE("neither threads nor the batch change the bits of the AR-SSM layer on the host") {
  const SemiseparableTensors tensors(48, 20, 24);
  const auto weights = core::load_semiseparable(tensors.views(), true);
  const auto policy = host::make_semiseparable(*weights);
  Random random(3);
  const std::vector<float> x = random.vector(5 * 200 * 48, -1.0f, 1.0f);
  std::vector<float> y(x.size()), again(x.size()), gates(5 * 200 * 20), alone(200 * 48),
      alone_gates(200 * 20);
  core::set_threads(1);
  policy->forward({x.data(), 5, 200, true}, {y.data(), gates.data()});
  core::set_threads(3);
  policy->forward({x.data(), 5, 200, true}, {again.data(), gates.data()});
  core::set_threads(0);
  policy->forward({x.data() + 3 * 200 * 48, 1, 200, true}, {alone.data(), alone_gates.data()});
  CHECK(y == again);
  CHECK(std::memcmp(alone.data(), y.data() + 3 * 200 * 48, alone.size() * sizeof(float)) == 0);
}

}  // namespace
}  // namespace exphil::test
