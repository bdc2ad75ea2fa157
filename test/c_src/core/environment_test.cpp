#include "core/environment.hpp"

#include <cstdlib>

#include "support/catch.hpp"
#include "support/errors.hpp"

namespace exphil::test {
namespace {

constexpr const char* kName = "EXPHIL_TEST_NUMBER";

TEST_CASE("an environment variable that is not set, or empty, is not a number", "[environment]") {
  unsetenv(kName);
  CHECK(core::environment(kName).empty());
  CHECK_FALSE(core::environment_number(kName, 0, 10));
  setenv(kName, "", 1);
  CHECK_FALSE(core::environment_number(kName, 0, 10));
  unsetenv(kName);
}

TEST_CASE("an environment variable's number is decimal and in its range", "[environment]") {
  setenv(kName, "10", 1);
  CHECK(core::environment(kName) == "10");
  CHECK(core::environment_number(kName, 0, 10) == 10);
  for (const char* bad : {"11", "-1", "12x", "lots", " 3", "+3", "3 ", "0x3", "99999999999999999999999"}) {
    setenv(kName, bad, 1);
    const CaughtError error = error_of([] { core::environment_number(kName, 0, 10); });
    CHECK(error.thrown);
    CHECK(error.kind == core::ErrorKind::invalid_argument);
    CHECK(error.argument == kName);
    CHECK(error.says("EXPHIL_TEST_NUMBER must be a number from 0 to 10, got \"" + std::string(bad) + "\""));
  }
  unsetenv(kName);
}

TEST_CASE("every build, also one without CUDA, checks the limit of pinned memory", "[environment]") {
  constexpr const char* kLimit = "EXPHIL_NATIVE_PINNED_LIMIT";
  const std::string before = core::environment(kLimit);
  setenv(kLimit, "4096", 1);
  CHECK(core::pinned_limit_from_environment() == 4096);
  setenv(kLimit, "512M", 1);
  const CaughtError error = error_of([] { core::pinned_limit_from_environment(); });
  CHECK(error.thrown);
  CHECK(error.argument == kLimit);
  CHECK(error.says("must be a number from 0 to 1125899906842624, got \"512M\""));
  if (before.empty()) {
    unsetenv(kLimit);
  } else {
    setenv(kLimit, before.c_str(), 1);
  }
}

}  // namespace
}  // namespace exphil::test
