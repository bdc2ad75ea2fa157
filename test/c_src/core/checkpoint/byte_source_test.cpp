#include "core/checkpoint/byte_source.hpp"

#include <cstdint>

#include "support/catch.hpp"
#include "support/erlang_writer.hpp"
#include "support/errors.hpp"

namespace exphil::core {

using namespace test::erlang;

TEST_CASE("what is compressed inflates to a bounded number of bytes", "[checkpoint]") {
  const Text bytes = deflated(Text(100, 'x'));
  InflationLimit limit(1000);
  InflatedBytes source(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "the tensor part",
                       limit);
  source.take(60);
  const test::CaughtError error = test::error_of([&] { source.take(InflationLimit::kAlways - 59); });
  CHECK(error.kind == ErrorKind::limit_exceeded);
  CHECK(error.says("the tensor part inflates to more than the limit"));
  CHECK(error.says("may inflate to 16777216 bytes together"));
  CHECK(*source.take(40) == 'x');
  const auto refused_beyond = [](std::uint64_t file_bytes, std::uint64_t most) {
    InflationLimit of_file(file_bytes);
    of_file.take(most, "x");
    return test::error_of([&] { of_file.take(1, "x"); }).kind == ErrorKind::limit_exceeded;
  };
  CHECK(refused_beyond(1 << 20, std::uint64_t{64} << 20));
  CHECK(refused_beyond(UINT64_MAX, std::uint64_t{4} << 30));
}

}  // namespace exphil::core
