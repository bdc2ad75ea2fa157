#include "xla/handlers.hpp"

#include "xla/platforms.hpp"

// The operators of each platform; scan.cpp and the others define the functions.
#define EXPHIL_XLA_CUDA_OPERATORS(X) \
  X(exphil_selective_scan) X(exphil_scan_cumulative) X(exphil_linear_recurrence)
#define EXPHIL_XLA_HOST_OPERATORS(X) EXPHIL_XLA_CUDA_OPERATORS(X) X(exphil_selective_scan_grad)

#define EXPHIL_DECLARE(NAME)              \
  extern "C" XLA_FFI_Handler NAME##_host; \
  extern "C" XLA_FFI_Handler NAME##_cuda;
EXPHIL_XLA_HOST_OPERATORS(EXPHIL_DECLARE)

namespace exphil::xla {

std::vector<NamedHandler> handlers() {
  return {
#define EXPHIL_HOST_ENTRY(NAME) {#NAME, "Host", NAME##_host, kHostTraits, false},
      EXPHIL_XLA_HOST_OPERATORS(EXPHIL_HOST_ENTRY)
#ifdef EXPHIL_CUDA
#define EXPHIL_CUDA_ENTRY(NAME) {#NAME, "CUDA", NAME##_cuda, kCudaTraits, true},
          EXPHIL_XLA_CUDA_OPERATORS(EXPHIL_CUDA_ENTRY)
#endif
  };
}

}  // namespace exphil::xla
