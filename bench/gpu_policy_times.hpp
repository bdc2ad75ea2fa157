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
#include <memory>
#include <vector>

#include "core/error.hpp"
#include "core/policy/policy.hpp"

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
  for (int i = 0; i < std::max(40, runs / 10); ++i) body();  // launches become graphs
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

// Two rounds of so many agents in different states, of which a sample repeats the last one by itself, from
// copies. obs: 3600 frames.
inline void check_batch(core::Policy& policy, const float* obs, std::int64_t count) {
  const core::PolicyConfig& config = policy.config();
  const std::int64_t every = std::max<std::int64_t>(1, count / 97);
  std::vector<std::unique_ptr<core::State>> states;
  std::vector<core::State*> pointers;
  Floats inputs, out(static_cast<std::size_t>(count * config.d_output), NAN), expected, got,
      scratch(static_cast<std::size_t>(8 * config.d_output));
  const auto append = [&](Floats& to, const float* outputs, core::State& state) {
    to.insert(to.end(), outputs, outputs + config.d_output);
    Floats values(static_cast<std::size_t>(config.state_floats()), NAN);
    policy.read_state(state, values.data());
    to.insert(to.end(), values.begin(), values.end());
  };
  for (std::int64_t i = 0; i < count; ++i) {
    states.push_back(policy.new_state());
    pointers.push_back(states.back().get());
    policy.prefill(*states.back(), obs + i % 100 * config.d_input, 3 + i % 5, scratch.data());
  }
  for (int round = 0; round < 2; ++round) {
    inputs.clear();
    for (std::int64_t i = 0; i < count; ++i) {
      const float* from = obs + (i * 7 + round * 31) % 3600 * config.d_input;
      inputs.insert(inputs.end(), from, from + config.d_input);
    }
    for (std::int64_t i = 0; round == 1 && i < count; i += every) {
      const auto copy = policy.new_state();
      policy.copy_state(*copy, *pointers[static_cast<std::size_t>(i)]);
      core::State* one = copy.get();
      policy.step(&one, 1, inputs.data() + i * config.d_input, scratch.data());
      append(expected, scratch.data(), *copy);
    }
    policy.step(pointers.data(), count, inputs.data(), out.data());
  }
  for (std::int64_t i = 0; i < count; i += every) {
    append(got, out.data() + i * config.d_output, *states[static_cast<std::size_t>(i)]);
  }
  report(core::message("step of ", count, " agents: unlike alone, bits").c_str(),
         static_cast<double>(bit_differences(got, expected)), 0);
}

inline void wait_2_ms() {
  const auto begin = Clock::now();
  while (microseconds(begin) < 2000) {
  }
}

}  // namespace exphil::bench
