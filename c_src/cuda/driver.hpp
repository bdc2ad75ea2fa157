// libcuda and libnvrtc, opened at run time: nothing links against CUDA. One table of entry points each,
// resolved on first use and never closed. Library names can be overridden (EXPHIL_NATIVE_LIBCUDA,
// EXPHIL_NATIVE_LIBNVRTC).
#pragma once

#include <cuda.h>
#include <nvrtc.h>

#include <string>

namespace exphil::cuda {

// The entry points this library uses, under their documented names. Versioned symbols (cuMemAlloc_v2, ...)
// are resolved behind the plain names.
struct Driver {
  decltype(&::cuInit) cuInit;
  decltype(&::cuLaunchKernel) cuLaunchKernel;
  decltype(&::cuLaunchCooperativeKernel) cuLaunchCooperativeKernel;
  // ... the rest is listed in driver.cpp's table order
};

struct Nvrtc {
  decltype(&::nvrtcVersion) nvrtcVersion;
};

// Throw backend_unavailable, saying which library was tried under which names and what the loader answered.
const Driver& driver();
const Nvrtc& nvrtc();

}  // namespace exphil::cuda
