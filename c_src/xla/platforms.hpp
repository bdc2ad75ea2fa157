// The platforms of the handlers. Each operator has one handler for each: Host and CUDA, as XLA names them.
#pragma once

#include "xla/ffi.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/device/context.hpp"
#endif

namespace exphil::xla {

// Traits of the handlers. Launches that depend on shapes, attributes and addresses alone may be recorded into
// a command buffer (a CUDA graph) and replayed. Those with scratch memory may not: XLA takes scratch back
// after the recording, and a replay would write to memory that others use by then.
inline constexpr XLA_FFI_Handler_Traits kHostTraits = 0;
inline constexpr XLA_FFI_Handler_Traits kReplayTraits = XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
inline constexpr XLA_FFI_Handler_Traits kScratchTraits = 0;

#ifdef EXPHIL_CUDA
// The context of the call's device: by its number, or by its stream where this XLA does not provide the
// number.
cuda::Context& context_of(const Frame& frame);

inline CUstream stream_of(const Frame& frame) {
  return static_cast<CUstream>(frame.stream());
}

inline CUdeviceptr address_of(const void* data) {
  return reinterpret_cast<CUdeviceptr>(data);
}
#endif

}  // namespace exphil::xla

// Defines the exported function NAME, which XLA or a frontend calls as an FFI handler.
#define EXPHIL_XLA_HANDLER(NAME, TRAITS, BODY)                                                      \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* NAME(XLA_FFI_CallFrame* frame) { \
    return ::exphil::xla::handle(frame, TRAITS, BODY);                                              \
  }
