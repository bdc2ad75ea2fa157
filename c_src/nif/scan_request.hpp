// The options of a scan call as a map from Elixir, including the results to compute. Used by scan.cpp, by
// ssd.cpp and by the reference scan of tools/.
#pragma once

#include "core/scan/call.hpp"
#include "nif/codec.hpp"
#include "nif/option_reader.hpp"

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

// dt_softplus and dt_range, which every operator with a dt has.
void take_dt_options(OptionReader& reader, core::DtOptions* options);

}  // namespace exphil::nif
