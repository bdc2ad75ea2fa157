// A sample of the cases of a test that has many: under compute-sanitizer each takes minutes.
#pragma once

#include <cstdint>
#include <string>

namespace exphil::test {

// Whether the running test takes its next case: the first one, and then each EXPHIL_CASES_EVERY-th; every one
// where the variable is not set. Throws where it is not a number above 0.
bool takes_case();

// The same, of the cases of `test` with each `every`-th taken.
bool takes_case(const std::string& test, const std::string& every);

}  // namespace exphil::test
