// Associative scans on a CUDA device. Any thread.
#pragma once

#include <cuda.h>

#include "core/associative/problem.hpp"
#include "cuda/associative/plan.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// The tensors of one scan in device memory. y_reverse receives the scan from the last element to the first;
// for a reverse scan that is y.
struct AssociativeTensors {
  const void *a = nullptr, *x = nullptr, *initial = nullptr;
  void *y = nullptr, *y_reverse = nullptr;
  // Of a linear recurrence's gradient alone: see kernels/associative/arguments.cuh.
  const void* h = nullptr;
  void *da = nullptr, *d_initial = nullptr;
};

// One scan, queued on `stream`: clear, then launch. `scratch` holds at least plan.scratch_bytes() bytes and
// may be reused after the kernel. The context must be current.
void clear_associative(Context& context, const AssociativePlan& plan, CUdeviceptr scratch, CUstream stream);
void launch_associative(Context& context, const AssociativePlan& plan, const AssociativeTensors& tensors,
                        CUdeviceptr scratch, CUstream stream);

// The complete call: tensors in host memory, copied there and back.
void run_associative(Context& context, const core::AssociativeProblem& problem,
                     const core::AssociativeOutputs& outputs);

}  // namespace exphil::cuda
