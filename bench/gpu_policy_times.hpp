// What the benchmarks of policies on a GPU share: checks that are counted, and times of calls.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

namespace exphil::bench {

using Clock = std::chrono::steady_clock;
using Floats = std::vector<float>;

inline int failures = 0;

inline std::int64_t from_environment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

inline double microseconds(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

inline void report(const char* what, double value, double limit) {
  const bool good = value <= limit;
  failures += good ? 0 : 1;
  std::printf("  %-46s %10.3g  (at most %g)  %s\n", what, value, limit, good ? "ok" : "WRONG");
  std::fflush(stdout);
}

inline double relative_error(const float* out, const float* reference, std::size_t count) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double delta = double{out[i]} - double{reference[i]};
    if (!std::isfinite(delta)) return INFINITY;
    difference += delta * delta;
    size += double{reference[i]} * double{reference[i]};
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

inline std::int64_t bit_differences(const Floats& p, const Floats& q) {
  std::int64_t different = 0;
  for (std::size_t i = 0; i < p.size(); ++i) different += std::memcmp(&p[i], &q[i], 4) != 0;
  return different + static_cast<std::int64_t>(p.size() != q.size());
}

inline void time(const char* what, int runs, const std::function<void()>& body,
                 const std::function<void()>& between = {}) {
  for (int i = 0; i < std::max(2, runs / 10); ++i) body();
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    if (between) between();
    const auto begin = Clock::now();
    body();
    times.push_back(microseconds(begin));
  }
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) {
    return times[static_cast<std::size_t>(part * static_cast<double>(times.size() - 1))];
  };
  std::printf("  %-34s p50 %9.1f  p90 %9.1f  p99 %9.1f  min %9.1f us  (%d)\n", what, at(0.5), at(0.9),
              at(0.99), at(0), runs);
  std::fflush(stdout);
}

inline void wait_2_ms() {
  const auto begin = Clock::now();
  while (microseconds(begin) < 2000) {
  }
}

}  // namespace exphil::bench
