// The numbered barriers of the emulated grid, by which the tests of kernels find a wrong use of a GPU's.
#include "support/grid.hpp"

#include <vector>

#include "support/catch.hpp"

namespace exphil::test {
namespace {

// Three warps make a value each, and a fourth adds them up, while they wait for the sum.
TEST_CASE("warps of two roles exchange values at numbered barriers", "[grid]") {
  std::vector<int> values(96), sums(96);
  int sum = 0;
  const auto kernel = [&] {
    const auto i = 32 * threadIdx.y + threadIdx.x;
    if (threadIdx.y == 3) {
      grid::wait_at(1, 128, __LINE__);
      if (threadIdx.x == 0) {
        for (const int value : values) sum += value;
      }
      grid::arrive_at(2, 128);
      return;
    }
    values[i] = static_cast<int>(i);
    grid::arrive_at(1, 128);
    grid::wait_at(2, 128, __LINE__);
    sums[i] = sum;
  };
  grid::run({1, 1, 1}, {32, 4, 1}, kernel);
  CHECK(sums == std::vector<int>(96, 95 * 96 / 2));
}

// PTX demands one place of bar.sync, and compute-sanitizer's synccheck reports two.
TEST_CASE("threads that wait for one barrier at two places are an error", "[grid]") {
  const auto kernel = [] {
    if (threadIdx.y == 0) {
      grid::wait_at(1, 64, 1);
    } else {
      grid::wait_at(1, 64, 2);
    }
  };
  CHECK_THROWS_WITH(grid::run({1, 1, 1}, {32, 2, 1}, kernel),
                    "threads wait at different places for one barrier, or more come than it expects");
}

TEST_CASE("a numbered barrier to which too few threads come leaves the grid stuck", "[grid]") {
  CHECK_THROWS_WITH(grid::run({1, 1, 1}, {32, 2, 1}, [] { grid::wait_at(1, 96, 1); }),
                    "the emulated grid is stuck");
}

}  // namespace
}  // namespace exphil::test
