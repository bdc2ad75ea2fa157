// libcuda and libnvrtc, opened at run time: nothing links against CUDA. One table of entry points each,
// resolved on first use and never closed (unloading a driver that EXLA uses would end the VM). Library names
// come from settings.hpp (EXPHIL_NATIVE_LIBCUDA, EXPHIL_NATIVE_LIBNVRTC, application config). Safe from any
// thread.
#pragma once

#include <cuda.h>
#include <nvrtc.h>

#include <string>

namespace exphil::cuda {

// The required entry points. cuda.h #defines many of these names to versioned symbols (cuMemAlloc ->
// cuMemAlloc_v2). The lists go through the same macros, so the member, its type and the symbol always agree
// with the header that the library was built with.
// clang-format off
#define EXPHIL_CUDA_DEVICE_CALLS(X)                                                                          \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString)                                      \
  X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDeviceTotalMem)          \
  X(cuDevicePrimaryCtxRetain) X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxGetCurrent) X(cuCtxSynchronize)

#define EXPHIL_CUDA_MEMORY_CALLS(X)                                                                          \
  X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostGetDevicePointer) \
  X(cuMemHostRegister) X(cuMemHostUnregister) X(cuPointerGetAttributes)                                      \
  X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync)             \
  X(cuMemcpy2DAsync) X(cuMemsetD8Async) X(cuMemsetD16Async) X(cuMemsetD32Async)

#define EXPHIL_CUDA_STREAM_CALLS(X)                                                                          \
  X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery) \
  X(cuStreamWaitEvent) X(cuCtxGetStreamPriorityRange)                                                        \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventSynchronize) X(cuEventQuery)                  \
  X(cuEventElapsedTime)

#define EXPHIL_CUDA_LAUNCH_CALLS(X)                                                                          \
  X(cuModuleLoadData) X(cuModuleLoadDataEx) X(cuModuleUnload) X(cuModuleGetFunction) X(cuModuleGetGlobal)    \
  X(cuFuncSetAttribute) X(cuFuncGetAttribute) X(cuLaunchKernel) X(cuLaunchCooperativeKernel)                 \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor)

#define EXPHIL_CUDA_GRAPH_CALLS(X)                                                                           \
  X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuStreamIsCapturing)                                       \
  X(cuGraphCreate) X(cuGraphDestroy) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphUpload)        \
  X(cuGraphExecDestroy) X(cuGraphAddKernelNode) X(cuGraphExecKernelNodeSetParams)

// Null where the driver is too old: callers must check before use.
#define EXPHIL_CUDA_OPTIONAL_CALLS(X)                                                                        \
  X(cuLaunchKernelEx) X(cuTensorMapEncodeTiled) X(cuOccupancyMaxActiveClusters) X(cuDeviceGetUuid)           \
  X(cuStreamWriteValue32) X(cuStreamWaitValue32) X(cuLaunchHostFunc) X(cuStreamGetCtx) X(cuCtxGetDevice)

#define EXPHIL_CUDA_REQUIRED_CALLS(X)                                                                        \
  EXPHIL_CUDA_DEVICE_CALLS(X) EXPHIL_CUDA_MEMORY_CALLS(X) EXPHIL_CUDA_STREAM_CALLS(X)                        \
  EXPHIL_CUDA_LAUNCH_CALLS(X) EXPHIL_CUDA_GRAPH_CALLS(X)

#define EXPHIL_NVRTC_CALLS(X)                                                                                \
  X(nvrtcVersion) X(nvrtcGetErrorString) X(nvrtcGetNumSupportedArchs) X(nvrtcGetSupportedArchs)              \
  X(nvrtcCreateProgram) X(nvrtcCompileProgram) X(nvrtcDestroyProgram)                                        \
  X(nvrtcGetProgramLogSize) X(nvrtcGetProgramLog)                                                            \
  X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN) X(nvrtcGetPTXSize) X(nvrtcGetPTX)
// clang-format on

#define EXPHIL_ENTRY_POINT(name) decltype(&::name) name = nullptr;

struct Driver {
  EXPHIL_CUDA_REQUIRED_CALLS(EXPHIL_ENTRY_POINT)
  EXPHIL_CUDA_OPTIONAL_CALLS(EXPHIL_ENTRY_POINT)
  std::string library;  // the name that opened
};

struct Nvrtc {
  EXPHIL_NVRTC_CALLS(EXPHIL_ENTRY_POINT)
  std::string library;
  int major = 0, minor = 0;
};

#undef EXPHIL_ENTRY_POINT

// Throw backend_unavailable, with the library, the names that were tried
// and the loader's errors, or with the missing entry point. A failure is
// remembered: later calls throw the same. driver() has called cuInit.
const Driver& driver();
const Nvrtc& nvrtc();

}  // namespace exphil::cuda
