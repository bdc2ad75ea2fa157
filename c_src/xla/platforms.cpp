#include "xla/platforms.hpp"

#include <memory>

#include "core/error.hpp"

#ifdef EXPHIL_CUDA
#include "cuda/device/driver.hpp"

namespace exphil::xla {

namespace {

int device_of_stream(CUstream stream) {
  CUcontext context = nullptr;
  CUdevice device = 0;
  const cuda::Driver& driver = cuda::driver();
  if (driver.cuStreamGetCtx == nullptr || driver.cuCtxGetDevice == nullptr ||
      driver.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
      driver.cuCtxPushCurrent(context) != CUDA_SUCCESS) {
    core::fail(core::ErrorKind::backend_unavailable, "", "the device of XLA's stream cannot be found");
  }
  const CUresult result = driver.cuCtxGetDevice(&device);
  driver.cuCtxPopCurrent(&context);
  if (result != CUDA_SUCCESS) {
    core::fail(core::ErrorKind::backend_unavailable, "", "the device of XLA's stream cannot be found");
  }
  return device;
}

}  // namespace

cuda::Context& context_of(const Frame& frame) {
  const std::optional<int> ordinal = frame.device_ordinal();
  // Context::open keeps the context until the process ends.
  return *cuda::Context::open(ordinal ? *ordinal : device_of_stream(stream_of(frame)));
}

}  // namespace exphil::xla
#endif
