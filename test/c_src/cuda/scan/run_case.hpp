// A scan through run_scan on the available device, real or emulated, compared with the oracle.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cuda/device/context.hpp"
#include "cuda/scan/runner.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"
#include "support/scan_case.hpp"

namespace exphil::test {

inline double limit_of(core::Dtype dtype) {
  return dtype == core::Dtype::f32 ? 1e-5 : dtype == core::Dtype::f16 ? 2e-3 : 1.5e-2;
}

// The results of a scan, poisoned before.
struct Results {
  std::vector<std::uint8_t> y, y_reverse;
  std::vector<float> final_state, states;

  bool same_bits(const Results& other) const {
    return y == other.y && y_reverse == other.y_reverse && same(final_state, other.final_state) &&
           same(states, other.states);
  }
  static bool same(const std::vector<float>& p, const std::vector<float>& q) {
    return p.size() == q.size() && (p.empty() || std::memcmp(p.data(), q.data(), 4 * p.size()) == 0);
  }
};

// `scan` is called with the results' addresses.
template <class Scan>
Results scan_into(const Scan& scan, core::ScanCall call, bool with_states) {
  const core::ScanShape p = call.shape;
  const bool both = p.options.direction == core::Direction::both;
  const std::size_t y_bytes = static_cast<std::size_t>(p.y_elements()) * core::dtype_size(p.dtype);
  const std::size_t floats = static_cast<std::size_t>(p.state_floats());
  const float poison = std::numeric_limits<float>::quiet_NaN();
  Results r;
  r.y.assign(y_bytes, 0xff);
  call.set(core::ScanOperand::y, r.y.data());
  if (both) {
    r.y_reverse.assign(y_bytes, 0xff);
    call.set(core::ScanOperand::y_reverse, r.y_reverse.data());
  } else {
    r.final_state.assign(floats, poison);
    call.set(core::ScanOperand::final_state, r.final_state.data());
  }
  if (with_states) {
    r.states.assign(floats * static_cast<std::size_t>(p.seq), poison);
    call.set(core::ScanOperand::states, r.states.data());
  }
  scan(call);
  return r;
}

inline Results scan_on_device(const core::ScanCall& call, bool with_states = false) {
  const auto scan = [](const core::ScanCall& filled) { cuda::run_scan(*cuda::Context::open(0), filled); };
  return scan_into(scan, call, with_states);
}

inline void check_close(const core::ScanShape& p, const Results& got, const ScanExpected& want, bool states) {
  const std::size_t count = static_cast<std::size_t>(p.y_elements());
  CHECK(relative_error(widen_result(got.y.data(), p.dtype, count), want.y) <= limit_of(p.dtype));
  if (p.options.direction == core::Direction::both) {
    CHECK(relative_error(widen_result(got.y_reverse.data(), p.dtype, count), want.y_reverse) <=
          limit_of(p.dtype));
  } else {
    CHECK(relative_error(got.final_state, want.final_state) <= 1e-5);
  }
  if (states) CHECK(relative_error(got.states, want.states) <= 1e-5);
}

}  // namespace exphil::test
