#include "core/finite.hpp"

#include <cstring>
#include <limits>
#include <vector>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace exphil::core {

namespace {

float of_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The largest finite values, the smallest ones, and zeros, of both signs.
const std::vector<float> kFinite = {
    0.0f, -0.0f, 1.0f, of_bits(0x7f7fffff), of_bits(0xff7fffff), of_bits(1), of_bits(0x80000001)};
const std::vector<float> kNotFinite = {of_bits(0x7f800000), of_bits(0xff800000), of_bits(0x7fc00000),
                                       of_bits(0x7f800001), of_bits(0xffffffff)};

}  // namespace

TEST_CASE("one value that is not finite is found at every place of every length", "[finite]") {
  for (std::int64_t count = 0; count <= 40; ++count) {
    // At an address that is a multiple of 4 only.
    std::vector<float> room(static_cast<std::size_t>(count) + 1);
    float* const values = room.data() + 1;
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = kFinite[static_cast<std::size_t>(i) % kFinite.size()];
    CHECK(all_finite(values, count));
    for (std::int64_t at = 0; at < count; ++at) {
      const float kept = values[at];
      for (const float bad : kNotFinite) {
        values[at] = bad;
        if (all_finite(values, count)) FAIL("value " << at << " of " << count << " was not seen");
      }
      values[at] = kept;
    }
  }
}

TEST_CASE("values around the counted ones do not matter", "[finite]") {
  std::vector<float> values(9, std::numeric_limits<float>::infinity());
  for (std::size_t i = 1; i < 8; ++i) values[i] = 1.0f;
  CHECK(all_finite(values.data() + 1, 7));
}

TEST_CASE("the error names the argument and the place of the first bad value", "[finite]") {
  std::vector<float> values(12, 1.0f);
  require_finite(values.data(), 12, 4, "frames");
  values[9] = std::numeric_limits<float>::infinity();
  values[10] = std::numeric_limits<float>::quiet_NaN();
  const auto rows = test::error_of([&] { require_finite(values.data(), 12, 4, "frames"); });
  CHECK(rows.kind == ErrorKind::invalid_argument);
  CHECK(rows.argument == "frames");
  CHECK(rows.message == "frames must be finite; value 1 of row 2 is inf");
  const auto one = test::error_of([&] { require_finite(values.data() + 8, 4, 4, "obs"); });
  CHECK(one.message == "obs must be finite; value 1 is inf");
}

}  // namespace exphil::core
