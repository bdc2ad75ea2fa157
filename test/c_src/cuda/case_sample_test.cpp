// The cases that tests on a GPU take where EXPHIL_CASES_EVERY is set. Needs no device.
#include "support/case_sample.hpp"

#include <utility>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "support/errors.hpp"

namespace exphil::test {
namespace {

std::vector<int> taken_of_seven() {
  std::vector<int> taken;
  CaseSample cases;
  for (int i = 0; i < 7; ++i) {
    if (cases.take()) taken.push_back(i);
  }
  return taken;
}

TEST_CASE("a sample takes the first case and every n-th after it", "[cuda][cases]") {
  for (const auto& [every, taken] :
       std::vector<std::pair<const char*, std::vector<int>>>{{"3", {0, 3, 6}},
                                                             {"1", {0, 1, 2, 3, 4, 5, 6}},
                                                             {"7", {0}},
                                                             {"1000000", {0}},
                                                             {nullptr, {0, 1, 2, 3, 4, 5, 6}}}) {
    const Environment variable("EXPHIL_CASES_EVERY", every);
    CHECK(taken_of_seven() == taken);
  }
}

TEST_CASE("a sample refuses what is not a positive whole number", "[cuda][cases]") {
  for (const char* bad : {"0", "-1", "2.5", "two", "3 ", "99999999999999999999"}) {
    const Environment variable("EXPHIL_CASES_EVERY", bad);
    const CaughtError error = error_of([] { CaseSample cases; });
    CAPTURE(bad);
    CHECK(error.thrown);
    CHECK(error.says("EXPHIL_CASES_EVERY must be a number from 1 to 1000000"));
  }
}

TEST_CASE("a sample of no case", "[.sample_of_no_case]") {
  const CaseSample cases;
}

TEST_CASE("a test whose sample has no case fails", "[cuda][cases]") {
  const RunResult run = run_tests("[.sample_of_no_case]", {});
  CAPTURE(run.output);
  CHECK(run.status != 0);
  CHECK(contains(run.output, "cases_ > 0"));
}

}  // namespace
}  // namespace exphil::test
