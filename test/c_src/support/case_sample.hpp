// Every n-th case of a test that has many, for tools under which each case takes long (.ci/sanitize_gpu):
//   CaseSample cases;
//   for (const PolicyForm& form : forms) {
//     if (cases.take()) check(form);
//   }
#pragma once

#include <cstdint>

#include "core/environment.hpp"
#include "support/catch.hpp"

namespace exphil::test {

class CaseSample {
 public:
  // n is EXPHIL_CASES_EVERY; 1, which is every case, where that is not set. A bad value throws.
  CaseSample() : every_(core::environment_number("EXPHIL_CASES_EVERY", 1, 1'000'000).value_or(1)) {}
  // A test without a case fails.
  ~CaseSample() { CHECK(cases_ > 0); }
  CaseSample(const CaseSample&) = delete;
  CaseSample& operator=(const CaseSample&) = delete;

  // Whether the next case is to be run: the first one always is.
  bool take() { return cases_++ % every_ == 0; }

 private:
  std::int64_t every_, cases_ = 0;
};

}  // namespace exphil::test
