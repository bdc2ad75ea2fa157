// The gradient of a linear recurrence (core/associative/recurrence_gradient.hpp) on a CUDA device: an
// elementwise kernel, the associative scan, an elementwise kernel. Callers: the XLA handlers, tests. Any
// thread.
#pragma once

#include <cuda.h>

#include <vector>

#include "core/associative/recurrence_gradient.hpp"
#include "cuda/associative/plan.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

struct RecurrenceGradPlan {
  AssociativePlan scan;
  KernelSpec prepare, finish;
  // Offsets in the scratch memory: the scan's decays, dh in f32 for halves, the scan's result, its hand-over.
  std::size_t decays = 0, dh = 0, sums = 0, exchange = 0;
  std::size_t scratch = 0;  // bytes
};

// Throws limit_exceeded for more blocks than a grid has. `problem` is not empty.
RecurrenceGradPlan plan_recurrence_grad(const core::RecurrenceGradProblem& problem);

// Compiles the kernels. The context must be current.
void prepare_recurrence_grad(Context& context, const RecurrenceGradPlan& plan);

// Queued on `stream`, on tensors in device memory. `scratch` holds plan.scratch bytes, aligned to 256. The
// context must be current.
void enqueue_recurrence_grad(Context& context, const RecurrenceGradPlan& plan,
                             const core::RecurrenceGradProblem& problem,
                             const core::RecurrenceGradOutputs& outputs, CUdeviceptr scratch,
                             CUstream stream);

// The elementwise kernels in every type, for the all-architectures compile test.
std::vector<KernelSpec> recurrence_grad_kernel_variants();

}  // namespace exphil::cuda
