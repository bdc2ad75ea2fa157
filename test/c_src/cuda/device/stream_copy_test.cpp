// Copies past the caches: every length and every alignment, and nothing beside them.
#include "cuda/device/stream_copy.hpp"

#include <vector>

#include "support/catch.hpp"

namespace exphil::test {
namespace {

TEST_CASE("copies past the caches", "[cuda][device]") {
  constexpr std::size_t kMost = 400;
  std::vector<unsigned char> from(kMost + 64), to(kMost + 128);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(1 + i % 251);
  int wrong = 0;
  for (std::size_t bytes = 0; bytes <= kMost; bytes += bytes < 140 ? 1 : 13) {
    for (const std::size_t source : {0, 1, 16, 31}) {
      for (const std::size_t target : {0, 1, 4, 15, 16, 33}) {
        to.assign(to.size(), 0);
        cuda::stream_copy(to.data() + target, from.data() + source, bytes);
        for (std::size_t i = 0; i < to.size(); ++i) {
          const bool inside = i >= target && i < target + bytes;
          wrong += to[i] != (inside ? from[source + i - target] : 0);
        }
      }
    }
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace exphil::test
