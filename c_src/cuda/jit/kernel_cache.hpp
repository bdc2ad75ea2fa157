// Kernels compiled at run time by NVRTC and kept: in memory per context, on disk per user. The disk key
// covers source, headers, options, architecture and NVRTC's version. Files are written under a temporary name
// and renamed, so two VMs can share the folder (EXPHIL_NATIVE_CACHE, else XDG_CACHE_HOME/exphil_native).
// kernel_compiler.hpp compiles.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>
#include <vector>

#include "cuda/jit/kernel_spec.hpp"

namespace exphil::cuda {

class Context;

// Compiles without a device: the tests do this for every variant and architecture. Returns the cubin.
// Throws compile_failed with NVRTC's log in the message, backend_unavailable without NVRTC.
std::string compile_to_cubin(const KernelSpec& spec, int architecture);

// Safe from any thread. Different kernels compile concurrently, the same one once.
class KernelCache {
 public:
  explicit KernelCache(Context& context);
  ~KernelCache();
  // The function, compiled or loaded on first use. dynamic_shared above 48 KB is opted into here.
  CUfunction get(const KernelSpec& spec, std::size_t dynamic_shared = 0);
  // Compiles the missing kernels, several in parallel: for a policy's warm-up. Throws the first failure.
  void prepare(const std::vector<KernelSpec>& specs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace exphil::cuda
