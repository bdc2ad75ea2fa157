// The oracle: the scan as problem.hpp writes it, one scalar loop, accumulated in double. Readable, never
// optimised. Tests compare every backend with it; benchmarks time its float twin as "a plain loop".
#pragma once

#include "core/scan/problem.hpp"

namespace exphil::core {

// All arithmetic in double on the (rounded) inputs. y, y_reverse: double {batch, seq, dim}; final_state and
// states: double, with c64 as interleaved pairs. Null members are not computed.
struct ScanReferenceOutputs {
  double* y = nullptr;
  double* y_reverse = nullptr;
  double* final_state = nullptr;
  double* states = nullptr;
};

void scan_reference(const ScanProblem& problem, const ScanReferenceOutputs& outputs);

// The same loop in float throughout, writing the problem's own dtypes: the yardstick for speed-ups.
void scan_reference_f32(const ScanProblem& problem, const ScanOutputs& outputs);

}  // namespace exphil::core
