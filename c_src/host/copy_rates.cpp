#include "host/copy_rates.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>

#include "core/work/parallel.hpp"

namespace exphil::host {

namespace {

// Twice this exceeds all last-level caches but those of the largest servers; a copy takes about 20 ms.
constexpr std::int64_t kBytes = std::int64_t{128} << 20;
constexpr std::int64_t kPiece = std::int64_t{1} << 20;
constexpr int kCopies = 6;

double seconds_of_copy(unsigned char* to, const unsigned char* from) {
  const auto began = std::chrono::steady_clock::now();
  core::parallel_for(kBytes, kPiece, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

core::CopyRates measure_copy_rates() {
  const std::unique_ptr<unsigned char[]> from(new unsigned char[kBytes]), to(new unsigned char[kBytes]);
  std::memset(from.get(), 1, kBytes);
  std::memset(to.get(), 2, kBytes);
  double best = seconds_of_copy(to.get(), from.get());
  for (int i = 1; i < kCopies; ++i) best = std::min(best, seconds_of_copy(to.get(), from.get()));
  const double rate = 2.0 * static_cast<double>(kBytes) / best;
  return {rate, rate, rate};
}

}  // namespace exphil::host
