// Associative scans on a CUDA device. Any thread.
#pragma once

#include <cuda.h>

#include "core/associative/problem.hpp"
#include "cuda/associative/plan.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// One scan of tensors in device memory, started on `stream`: clear, then launch. What it needs beside its
// tensors lives in `scratch` (plan.scratch_bytes(), at least), which is free again when the kernel has run.
// y_reverse receives what runs from the last element to the first: y itself for a reverse scan. The context
// is current.
void clear_associative(Context& context, const AssociativePlan& plan, CUdeviceptr scratch, CUstream stream);
void launch_associative(Context& context, const AssociativePlan& plan, const void* a, const void* x, void* y,
                        void* y_reverse, CUdeviceptr scratch, CUstream stream);

// The whole call: tensors in host memory, copied there and back.
void run_associative(Context& context, const core::AssociativeProblem& problem,
                     const core::AssociativeOutputs& outputs);

}  // namespace exphil::cuda
