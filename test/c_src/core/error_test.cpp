#include "core/error.hpp"

#include <set>

#include "support/catch.hpp"

namespace exphil::core {

TEST_CASE("every error kind has its own name", "[error]") {
  std::set<std::string> names;
  for (int kind = 0; kind <= static_cast<int>(ErrorKind::internal); ++kind) {
    names.insert(error_kind_name(static_cast<ErrorKind>(kind)));
  }
  CHECK(names.size() == static_cast<std::size_t>(ErrorKind::internal) + 1);
  CHECK(std::string(error_kind_name(ErrorKind::device_lost)) == "device_lost");
}

TEST_CASE("fail carries kind, argument and the joined message", "[error]") {
  try {
    fail(ErrorKind::limit_exceeded, "a", "state is ", 300, "; the limit is ", 256);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::limit_exceeded);
    CHECK(error.argument() == "a");
    CHECK(std::string(error.what()) == "state is 300; the limit is 256");
    return;
  }
  FAIL("nothing was thrown");
}

}  // namespace exphil::core
