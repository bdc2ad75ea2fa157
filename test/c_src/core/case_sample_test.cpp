// The samples that tests with many cases take under compute-sanitizer.
#include "support/case_sample.hpp"

#include <string>
#include <vector>

#include "support/catch.hpp"

namespace exphil::test {
namespace {

TEST_CASE("a sample of cases begins with the first one of each test", "[support]") {
  const auto taken = [](const std::string& test, const std::string& every) {
    std::vector<int> cases;
    for (int i = 0; i < 7; ++i) {
      if (takes_case(test, every)) cases.push_back(i);
    }
    return cases;
  };
  CHECK(taken("one", "3") == std::vector<int>{0, 3, 6});
  CHECK(taken("another", "3") == std::vector<int>{0, 3, 6});
  CHECK(taken("all", "1") == std::vector<int>{0, 1, 2, 3, 4, 5, 6});
  CHECK(taken("the first", "100") == std::vector<int>{0});
  for (const char* bad : {"0", "-1", "x", "2x", "", "99999999999"}) {
    CAPTURE(bad);
    CHECK_THROWS(takes_case("bad", bad));
  }
}

}  // namespace
}  // namespace exphil::test
