// The gradient of a linear recurrence (core/associative/recurrence_gradient.hpp) on a CUDA device: the
// associative scan's kernel, which then reads the recurrence's results too and writes both gradients.
// Callers: the XLA handlers, tests. Any thread.
#pragma once

#include <cuda.h>

#include "core/associative/recurrence_gradient.hpp"
#include "cuda/associative/plan.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

struct RecurrenceGradPlan {
  AssociativePlan scan;
  std::size_t scratch = 0;  // bytes
};

// Throws limit_exceeded for more blocks than a grid has. `problem` is not empty.
RecurrenceGradPlan plan_recurrence_grad(const core::RecurrenceGradProblem& problem);

// Compiles the kernel. The context must be current.
void prepare_recurrence_grad(Context& context, const RecurrenceGradPlan& plan);

// Queued on `stream`, on tensors in device memory. `scratch` holds plan.scratch bytes, aligned to 256. The
// context must be current.
void enqueue_recurrence_grad(Context& context, const RecurrenceGradPlan& plan,
                             const core::RecurrenceGradProblem& problem,
                             const core::RecurrenceGradOutputs& outputs, CUdeviceptr scratch,
                             CUstream stream);

}  // namespace exphil::cuda
