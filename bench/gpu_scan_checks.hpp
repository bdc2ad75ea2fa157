// Every kind of scan on the device against the double oracle, for bench/gpu_scan.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "bench/gpu_scan_cases.hpp"
#include "core/scan/reference.hpp"
#include "cuda/scan/runner.hpp"

namespace exphil::bench {

struct Tally {
  int runs = 0, failures = 0;
  double worst[3] = {};  // f32, f16, bf16: largest error of y
};

inline std::vector<float> widened(const Bytes& data, Dtype dtype) {
  std::vector<float> out(data.size() / core::dtype_size(dtype));
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t half = 0;
    if (dtype == Dtype::f32) {
      std::memcpy(&out[i], &data[4 * i], 4);
    } else {
      std::memcpy(&half, &data[2 * i], 2);
      out[i] = dtype == Dtype::f16 ? core::f16_to_f32(half) : core::bf16_to_f32(half);
    }
  }
  return out;
}

inline void check(cuda::Context& context, ScanCall call, bool with_states, Tally* tally) {
  const ScanShape p = call.shape;
  const std::size_t count = static_cast<std::size_t>(p.y_elements());
  const std::size_t floats = static_cast<std::size_t>(p.state_floats());
  const bool both = p.options.direction == core::Direction::both;
  Bytes y(count * core::dtype_size(p.dtype), 0xff), y_reverse(both ? y.size() : 0, 0xff);
  std::vector<float> last(both ? 0 : floats, NAN),
      states(with_states ? floats * static_cast<std::size_t>(p.seq) : 0, NAN);
  std::vector<double> want_y(count), want_reverse(y_reverse.size() / core::dtype_size(p.dtype)),
      want_last(last.size()), want_states(states.size());
  const auto at = [](auto& v) { return v.empty() ? nullptr : v.data(); };
  double worst = 0;
  ++tally->runs;
  try {
    call.set(ScanOperand::y, at(y)), call.set(ScanOperand::y_reverse, at(y_reverse));
    call.set(ScanOperand::final_state, at(last)), call.set(ScanOperand::states, at(states));
    cuda::run_scan(context, call);
    core::scan_reference(call, {want_y.data(), at(want_reverse), at(want_last), at(want_states)});
    const double limit = p.dtype == Dtype::f32 ? 1e-5 : p.dtype == Dtype::f16 ? 2e-3 : 1.5e-2;
    const double y_error = std::max(test::relative_error(widened(y, p.dtype), want_y),
                                    test::relative_error(widened(y_reverse, p.dtype), want_reverse));
    const double state_error =
        std::max(test::relative_error(last, want_last), test::relative_error(states, want_states));
    double& class_worst = tally->worst[p.dtype == Dtype::f32 ? 0 : p.dtype == Dtype::f16 ? 1 : 2];
    class_worst = std::max(class_worst, y_error);
    worst = std::max(y_error / limit, state_error / 1e-5);
    if (worst <= 1) return;
    std::printf("FAIL %s: y %.2e states %.2e\n", name_of(p).c_str(), y_error, state_error);
  } catch (const core::Error& error) {
    std::printf("FAIL %s: %.300s\n", name_of(p).c_str(), error.what());
  }
  ++tally->failures;
}

// walks: only sequential scans, whose warps share only data that a barrier orders.
inline void check_all(cuda::Context& context, bool walks = false) {
  Tally tally;
  const auto run = [&](ScanShape kind, bool everything, bool states = false) {
    for (const auto algorithm : {core::ScanAlgorithm::sequential, core::ScanAlgorithm::chunked}) {
      if (walks && algorithm != core::ScanAlgorithm::sequential) continue;
      kind.options.algorithm = algorithm;
      const HostCase c(kind, static_cast<std::uint64_t>(1 + tally.runs), everything);
      check(context, c.call, states, &tally);
    }
  };
  for (int rule = 0; rule < 6; ++rule) {
    const auto discretization = static_cast<Discretization>(rule);
    for (const std::int64_t seq : {0, 1, 2, 31, 60, 127, 1000}) {
      run(kind_of(3, seq, 65, 16, discretization), seq % 2 == 1, seq == 31);
    }
    ScanShape complex = kind_of(2, 100, 31, 16, discretization);
    complex.complex = true;
    run(complex, true, true);
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
      run(kind_of(2, 200, 64, 16, discretization, dtype), true);
  }
  for (const std::int64_t state : {1, 2, 3, 7, 17, 31, 32, 33, 64, 128, 256}) {
    run(kind_of(2, 130, 33, state), true, true);
    ScanShape complex = kind_of(2, 70, 3, state);
    complex.complex = true;
    run(complex, false);
  }
  for (const std::int64_t dim : {1, 3, 31, 64, 1031}) run(kind_of(2, 97, dim, 16), false);
  run(kind_of(1, 4097, 64, 16), true);
  run(kind_of(1, 70001, 3, 16), false);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (const int b_groups : {0, 1, 2}) {
      for (const int c_groups : {0, 1, 3}) {
        for (const auto direction :
             {core::Direction::forward, core::Direction::reverse, core::Direction::both}) {
          ScanShape kind = kind_of(2, 75, 42, 16, Discretization::zoh, dtype);
          kind.b_layout = {b_groups == 0, std::max(1, b_groups)};
          kind.c_layout = {c_groups == 0, std::max(1, c_groups)};
          kind.options.direction = direction;
          run(kind, true);
        }
      }
    }
  }
  for (const std::int64_t state : {1, 5, 16, 32}) {
    ScanShape matrix = kind_of(2, 40, 7, state, Discretization::bilinear);
    matrix.full_matrix = true;
    run(matrix, true, true);
  }
  std::printf(
      "checks: %d runs, %d failures; worst error of y: f32 %.1e (1e-5), f16 %.1e (2e-3), bf16 %.1e "
      "(1.5e-2)\n",
      tally.runs, tally.failures, tally.worst[0], tally.worst[1], tally.worst[2]);
}

}  // namespace exphil::bench
