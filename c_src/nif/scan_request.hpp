// The options of a scan call as Elixir hands them over, and which results it asks for. Used by scan.cpp.
#pragma once

#include "core/scan/problem.hpp"
#include "nif/codec.hpp"

namespace exphil::nif {

struct ScanRequest {
  core::ScanOptions options;
  bool final_state = false;
  bool states = false;
};

// {discretization, dt_softplus, nil | {min, max}, direction, algorithm, final_state?, states?}
template <>
struct Decoder<ScanRequest> {
  static ScanRequest decode(Call& call, Term term, const char* argument);
};

}  // namespace exphil::nif
