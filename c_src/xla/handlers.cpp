#include "xla/handlers.hpp"

#include "xla/platforms.hpp"

// The operators, with their traits on CUDA; scan.cpp and the others define the functions.
#define EXPHIL_XLA_OPERATORS(X)                      \
  X(exphil_selective_scan, kReplayTraits)            \
  X(exphil_selective_scan_grad, kScratchTraits)      \
  X(exphil_scan_cumulative, kScratchTraits)          \
  X(exphil_linear_recurrence, kScratchTraits)        \
  X(exphil_linear_recurrence_grad, kScratchTraits)   \
  X(exphil_diagonal_recurrence, kScratchTraits)      \
  X(exphil_diagonal_recurrence_grad, kScratchTraits) \
  X(exphil_dense_recurrence, kScratchTraits)         \
  X(exphil_dense_recurrence_grad, kScratchTraits)    \
  X(exphil_state_space_duality, kScratchTraits)      \
  X(exphil_state_space_duality_grad, kScratchTraits)

#define EXPHIL_DECLARE(NAME, TRAITS)      \
  extern "C" XLA_FFI_Handler NAME##_host; \
  extern "C" XLA_FFI_Handler NAME##_cuda;
EXPHIL_XLA_OPERATORS(EXPHIL_DECLARE)

namespace exphil::xla {

std::vector<NamedHandler> handlers() {
  return {
#define EXPHIL_HOST_ENTRY(NAME, TRAITS) {#NAME, "Host", NAME##_host, kHostTraits, false},
      EXPHIL_XLA_OPERATORS(EXPHIL_HOST_ENTRY)
#ifdef EXPHIL_CUDA
#define EXPHIL_CUDA_ENTRY(NAME, TRAITS) {#NAME, "CUDA", NAME##_cuda, TRAITS, true},
          EXPHIL_XLA_OPERATORS(EXPHIL_CUDA_ENTRY)
#endif
  };
}

}  // namespace exphil::xla
