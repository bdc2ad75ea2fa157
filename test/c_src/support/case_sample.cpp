#include "support/case_sample.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "core/environment.hpp"
#include "support/catch.hpp"

namespace exphil::test {

bool takes_case() {
  const std::string every = core::environment("EXPHIL_CASES_EVERY");
  return takes_case(Catch::getResultCapture().getCurrentTestName(), every.empty() ? "1" : every);
}

bool takes_case(const std::string& test, const std::string& every) {
  static std::map<std::string, std::int64_t> seen;
  const bool digits = !every.empty() && every.size() < 10 &&
                      std::all_of(every.begin(), every.end(), [](char c) { return c >= '0' && c <= '9'; });
  const std::int64_t step = digits ? std::stoll(every) : 0;
  if (step < 1)
    throw std::invalid_argument("EXPHIL_CASES_EVERY is a number above 0; it is \"" + every + "\"");
  return seen[test]++ % step == 0;
}

}  // namespace exphil::test
