// Copies past the caches: every length and every alignment, and nothing beside them.
#include "cuda/device/stream_copy.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace exphil::test {
namespace {

TEST_CASE("copies past the caches", "[cuda][device]") {
  constexpr std::size_t kMost = 400;
  std::vector<unsigned char> from(kMost + 64), to(kMost + 128);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(1 + i % 251);
  int wrong = 0;
  for (const cuda::LineCopies& copies : cuda::line_copies()) {
    for (std::size_t bytes = 0; bytes <= kMost; bytes += bytes < 140 ? 1 : 13) {
      for (const std::size_t source : {0, 1, 16, 31}) {
        for (const std::size_t target : {0, 1, 4, 15, 16, 33}) {
          to.assign(to.size(), 0);
          cuda::stream_copy(to.data() + target, from.data() + source, bytes, copies);
          for (std::size_t i = 0; i < to.size(); ++i) {
            const bool inside = i >= target && i < target + bytes;
            wrong += to[i] != (inside ? from[source + i - target] : 0);
          }
        }
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("rows past the caches are padded, and each value that is not finite is found", "[cuda][device]") {
  constexpr std::size_t kWidth = 35, kRow = 48, kCount = 3;
  struct alignas(64) Rows {
    float values[kRow * kCount];
  };
  std::vector<float> from(kWidth * kCount);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i) - 50.0f;
  for (const cuda::LineCopies& copies : cuda::line_copies()) {
    Rows to;
    std::fill(std::begin(to.values), std::end(to.values), 7.0f);
    CHECK(cuda::stream_rows(to.values, kRow, from.data(), kWidth, kCount, copies));
    int wrong = 0;
    for (std::size_t i = 0; i < kRow * kCount; ++i) {
      const std::size_t row = i / kRow, at = i % kRow;
      wrong += to.values[i] != (at < kWidth ? from[row * kWidth + at] : 0.0f);
    }
    CHECK(wrong == 0);
    int missed = 0;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      for (float& value : from) {
        const float before = std::exchange(value, bad);
        missed += cuda::stream_rows(to.values, kRow, from.data(), kWidth, kCount, copies) ? 1 : 0;
        value = before;
      }
    }
    CHECK(missed == 0);
    for (float& value : from) value = std::numeric_limits<float>::lowest();
    CHECK(cuda::stream_rows(to.values, kRow, from.data(), kWidth, kCount, copies));
  }
}

}  // namespace
}  // namespace exphil::test
