// The options of a scan call as a map from Elixir, including the results to compute. Used by scan.cpp and by
// the reference scan of tools/.
#pragma once

#include "core/scan/call.hpp"
#include "nif/codec.hpp"

namespace exphil::nif {

struct ScanRequest {
  core::ScanOptions options;
  core::ScanResults results;
};

// A map. Every key is optional, unknown keys are refused:
//   discretization: atom, dt_softplus: boolean, dt_range: nil | {min, max}, direction: atom, algorithm: atom,
//   final_state: boolean, states: boolean
template <>
struct Decoder<ScanRequest> {
  static ScanRequest decode(Call& call, Term term, const char* argument);
};

}  // namespace exphil::nif
