// Stretches of a scan's batch: the same problem for sequences begin .. begin + count. Pointers move, nothing
// is copied. Works for host and device addresses alike.
#pragma once

#include <cstdint>

#include "core/scan/problem.hpp"

namespace exphil::cuda {

// Bytes of one tensor for a whole problem; 0 where it is left out.
struct ScanBytes {
  std::size_t x = 0, z = 0, a = 0, b = 0, c = 0, d = 0, dt_bias = 0, state = 0, states = 0;
};
ScanBytes scan_bytes(const core::ScanProblem& problem);

core::ScanProblem slice_batch(const core::ScanProblem& problem, std::int64_t begin, std::int64_t count);
core::ScanOutputs slice_batch(const core::ScanProblem& problem, const core::ScanOutputs& outputs,
                              std::int64_t begin);

}  // namespace exphil::cuda
