// Every handler of the library, by the name that HLO calls it by and the platform that it runs on. The
// exported functions are NAME_host and NAME_cuda, for fronts that register handlers themselves (JAX).
#pragma once

#include <vector>

#include "xla/ffi.hpp"

namespace exphil::xla {

struct NamedHandler {
  const char* name;      // "exphil_selective_scan"
  const char* platform;  // "Host" or "CUDA"
  XLA_FFI_Handler* function;
  XLA_FFI_Handler_Traits traits;
  bool prepares;  // is called in the initialise stage too
};
std::vector<NamedHandler> handlers();

}  // namespace exphil::xla
