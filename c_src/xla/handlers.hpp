// Every handler of the library, with its name in HLO and its platform. The exported functions are NAME_host
// and NAME_cuda, for frontends that register handlers themselves (JAX).
#pragma once

#include <vector>

#include "xla/ffi.hpp"

namespace exphil::xla {

struct NamedHandler {
  const char* name;      // "exphil_selective_scan"
  const char* platform;  // "Host" or "CUDA"
  XLA_FFI_Handler* function;
  XLA_FFI_Handler_Traits traits;
  bool prepares;  // also called in the initialise stage
};
std::vector<NamedHandler> handlers();

}  // namespace exphil::xla
