// The fused recurrent operators (core/recurrent/call.hpp) on a CUDA device. Callers: the CUDA backend, the
// XLA handlers, tests. Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "core/recurrent/call.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// The complete call, or that of the gradient: tensors in host memory, copied there and back.
void run_recurrent(Context& context, const core::RecurrentCall& call);

// Bytes of device memory that a call needs beside its tensors.
std::size_t recurrent_scratch(const core::RecurrentShape& shape);

// Compiles the kernels. The context must be current.
void prepare_recurrent(Context& context, const core::RecurrentShape& shape);

// Queued on `stream`: the operator, or with dh its gradient, on tensors in device memory. `scratch` holds
// recurrent_scratch() bytes, aligned to 256. The context must be current. Throws limit_exceeded for more
// blocks than a grid has, and for a dense cell whose state does not fit in a block's shared memory.
void enqueue_recurrent(Context& context, CUstream stream, const core::RecurrentShape& shape,
                       const core::RecurrentOperands<CUdeviceptr>& operands, CUdeviceptr scratch);

}  // namespace exphil::cuda
