// The oracle: the scan as core/scan/call.hpp writes it, one scalar loop, accumulated in double. Readable,
// never optimised. Tests compare every backend with it; benchmarks time its float twin as "a plain loop".
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

// `outputs` takes the place of the results of `call`, whose addresses may be null.
void scan_reference(const ScanCall& call, const ScanReferenceOutputs& outputs);

// The same loop in float throughout, writing the results of `call` in their own dtypes: the yardstick for
// speed-ups.
void scan_reference_f32(const ScanCall& call);

}  // namespace exphil::core
