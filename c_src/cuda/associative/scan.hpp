// Associative scans on a CUDA device. Any thread.
#pragma once

#include <cuda.h>

#include "core/associative/problem.hpp"
#include "cuda/associative/plan.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// One scan of tensors in device memory, queued on `stream`: clear, then
// launch. `scratch` holds at least plan.scratch_bytes() bytes and may be
// reused after the kernel. y_reverse receives the scan from the last element
// to the first; for a reverse scan that is y. The context must be current.
void clear_associative(Context& context, const AssociativePlan& plan, CUdeviceptr scratch, CUstream stream);
void launch_associative(Context& context, const AssociativePlan& plan, const void* a, const void* x, void* y,
                        void* y_reverse, CUdeviceptr scratch, CUstream stream);

// The complete call: tensors in host memory, copied there and back.
void run_associative(Context& context, const core::AssociativeProblem& problem,
                     const core::AssociativeOutputs& outputs);

}  // namespace exphil::cuda
