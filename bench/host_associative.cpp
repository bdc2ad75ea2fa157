// Times the host's associative scans against the plain scalar loop compiled with the same flags, in one run.
// Prints one row for each case: median milliseconds, and how many times faster than the loop.
//   make build/bench/host_associative && build/bench/host_associative [runs]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "core/associative/reference.hpp"
#include "core/work/parallel.hpp"
#include "host/associative/scan.hpp"

namespace {

using namespace exphil;
using core::AssociativeOp;
using Clock = std::chrono::steady_clock;

struct Case {
  AssociativeOp op;
  std::int64_t outer, length, inner;
  bool compensated = false;
};

// Alternates the two functions, so that both run under the same conditions.
void median_ms(int runs, const std::function<void()>& first, const std::function<void()>& second,
               double (&out)[2]) {
  std::vector<double> times[2];
  for (int run = -1; run < runs; ++run) {
    for (int which = 0; which < 2; ++which) {
      const auto begin = Clock::now();
      which == 0 ? first() : second();
      const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
      if (run >= 0) times[which].push_back(ms);
    }
  }
  for (int which = 0; which < 2; ++which) {
    std::sort(times[which].begin(), times[which].end());
    out[which] = times[which][times[which].size() / 2];
  }
}

void run_case(const Case& c, int runs) {
  const std::size_t count = static_cast<std::size_t>(c.outer * c.length * c.inner);
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> uniform(0.5f, 1.0f);
  std::vector<float> x(count), a(count), y(count), expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    // Keeps the product near 1; otherwise denormal numbers would be timed.
    x[i] = c.op == AssociativeOp::cumprod && i / static_cast<std::size_t>(c.inner) % 2 == 1
               ? 1.0f / x[i - static_cast<std::size_t>(c.inner)]
               : uniform(generator);
    a[i] = uniform(generator);
  }
  core::AssociativeProblem problem;
  problem.op = c.op;
  problem.outer = c.outer;
  problem.length = c.length;
  problem.inner = c.inner;
  problem.compensated = c.compensated;
  problem.x = x.data();
  problem.a = c.op == AssociativeOp::linear_recurrence ? a.data() : nullptr;
  double ms[2];
  median_ms(
      runs,
      [&] {
        host::associative_scan(problem, {y.data(), nullptr});
      },
      [&] { core::associative_plain_loop(problem, false, expected.data()); }, ms);
  std::printf("%-18s %5lld x %7lld x %4lld%s  %9.3f ms  loop %9.3f ms  %6.2f times\n",
              core::associative_op_name(c.op), static_cast<long long>(c.outer),
              static_cast<long long>(c.length), static_cast<long long>(c.inner),
              c.compensated ? " compensated" : "            ", ms[0], ms[1], ms[1] / ms[0]);
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15;
  std::printf("%d threads, medians of %d\n", core::threads(), runs);
  for (const AssociativeOp op : {AssociativeOp::cumsum, AssociativeOp::cumprod, AssociativeOp::cummax,
                                 AssociativeOp::cummin, AssociativeOp::linear_recurrence}) {
    for (const Case& c : {Case{op, 4, 1024, 512}, Case{op, 1, 1000000, 1}, Case{op, 1, 16384, 1},
                          Case{op, 1024, 1024, 1}, Case{op, 32, 60, 512}}) {
      run_case(c, runs);
    }
  }
  for (const Case& c :
       {Case{AssociativeOp::cumsum, 4, 1024, 512, true}, Case{AssociativeOp::cumsum, 1, 1000000, 1, true}}) {
    run_case(c, runs);
  }
  return 0;
}
