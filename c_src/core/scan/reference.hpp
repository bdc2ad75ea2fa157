// The oracle: the scan of core/scan/call.hpp as one scalar loop, accumulated in double. Readable, never
// optimised. Tests compare every backend with it; benchmarks time its float version as "a plain loop".
#pragma once

#include "core/scan/call.hpp"

namespace exphil::core {

// All arithmetic in double on the (rounded) inputs. y, y_reverse: double {batch, seq, dim}; final_state and
// states: double, with c64 as interleaved pairs. Null members are not computed.
struct ScanReferenceOutputs {
  double* y = nullptr;
  double* y_reverse = nullptr;
  double* final_state = nullptr;
  double* states = nullptr;
};

// Writes to `outputs` instead of the results of `call`, whose addresses may be null.
void scan_reference(const ScanCall& call, const ScanReferenceOutputs& outputs);

// The same loop in float throughout, writing the results of `call` in their own dtypes: the baseline for
// speed-ups.
void scan_reference_f32(const ScanCall& call);

}  // namespace exphil::core
