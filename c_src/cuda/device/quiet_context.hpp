// Makes a context current for a scope of code that must not throw, as a destructor, and restores the previous
// one. Where that fails the device is lost, or the process ends; the context may be current all the same. See
// ContextGuard (context.hpp) for everything else. On one thread; guards nest.
#pragma once

#include <cuda.h>

#include "cuda/device/driver.hpp"

namespace exphil::cuda {

class QuietContext {
 public:
  explicit QuietContext(CUcontext context) noexcept
      : pushed_(driver().cuCtxPushCurrent(context) == CUDA_SUCCESS) {}
  ~QuietContext() {
    CUcontext previous;
    if (pushed_) driver().cuCtxPopCurrent(&previous);
  }
  QuietContext(const QuietContext&) = delete;
  QuietContext& operator=(const QuietContext&) = delete;
  bool pushed() const noexcept { return pushed_; }

 private:
  const bool pushed_;
};

}  // namespace exphil::cuda
