#include "core/finite.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.hpp"

namespace exphil::core {

namespace {

// A vector register, which the compiler does not use by itself at -O2.
using Bits = std::uint32_t __attribute__((vector_size(16)));
constexpr std::int64_t kFloats = sizeof(Bits) / sizeof(float);

// The exponent of a value that is not finite is all ones: adding one to it reaches the bit of the sign, which
// was cleared.
constexpr std::uint32_t kExponent = 0x7f800000, kOne = 0x00800000, kSign = 0x80000000;

Bits marked(const float* values) {
  Bits bits;
  std::memcpy(&bits, values, sizeof bits);
  return (bits & kExponent) + kOne;
}

}  // namespace

bool all_finite(const float* values, std::int64_t count) {
  Bits even = {}, odd = {};
  std::int64_t at = 0;
  for (; at + 2 * kFloats <= count; at += 2 * kFloats) {
    even |= marked(values + at);
    odd |= marked(values + at + kFloats);
  }
  for (; at < count; at += kFloats) {
    float rest[kFloats] = {};
    std::copy_n(values + at, std::min(kFloats, count - at), rest);
    even |= marked(rest);
  }
  even |= odd;
  return ((even[0] | even[1] | even[2] | even[3]) & kSign) == 0;
}

void require_finite(const float* values, std::int64_t count, std::int64_t width, const char* argument) {
  if (all_finite(values, count)) return;
  const std::int64_t at =
      std::find_if(values, values + count, [](float value) { return !std::isfinite(value); }) - values;
  if (count == width) {
    fail(ErrorKind::invalid_argument, argument, argument, " must be finite; value ", at, " is ", values[at]);
  }
  fail(ErrorKind::invalid_argument, argument, argument, " must be finite; value ", at % width, " of row ",
       at / width, " is ", values[at]);
}

}  // namespace exphil::core
