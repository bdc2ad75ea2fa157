// The AR-SSM layer on a real device against the double oracle.
#include "cuda/semiseparable/layer.hpp"

#include <array>

#include "cuda/cuda_test.hpp"
#include "support/catch.hpp"
#include "support/semiseparable_case.hpp"

namespace exphil::test {
namespace {

TEST_CASE("the AR-SSM layer on the device agrees with the oracle", "[gpu]") {
  if (!have_device()) return;
  for (const auto& [hidden, rank, inner] : {std::array<std::int64_t, 3>{1, 1, 1},
                                            {3, 2, 5},
                                            {64, 16, 64},
                                            {65, 17, 33},
                                            {256, 32, 128},
                                            {40, 600, 7}}) {
    const SemiseparableTensors tensors(hidden, rank, inner);
    const auto weights = core::load_semiseparable(tensors.views(), true);
    const auto policy = cuda::load_semiseparable(cuda::Context::open(0), *weights);
    for (const std::int64_t seq : {0, 1, 2, 3, 33, 130, 1000}) {
      for (const bool bidirectional : {false, true}) {
        CHECK(semiseparable_mismatch(*policy, *weights, 2, seq, bidirectional) == "");
      }
    }
  }
}

TEST_CASE("the batch does not change the bits of the AR-SSM layer on the device", "[gpu]") {
  if (!have_device()) return;
  const SemiseparableTensors tensors(48, 20, 24);
  const auto weights = core::load_semiseparable(tensors.views(), true);
  const auto policy = cuda::load_semiseparable(cuda::Context::open(0), *weights);
  Random random(3);
  const std::vector<float> x = random.vector(5 * 700 * 48, -1.0f, 1.0f);
  std::vector<float> y(x.size()), gates(5 * 700 * 20), alone(700 * 48), alone_gates(700 * 20);
  policy->forward({x.data(), 5, 700, true}, {y.data(), gates.data()});
  policy->forward({x.data() + 3 * 700 * 48, 1, 700, true}, {alone.data(), alone_gates.data()});
  CHECK(std::equal(alone.begin(), alone.end(), y.begin() + 3 * 700 * 48));
}

}  // namespace
}  // namespace exphil::test
