// The launches of kernels/recurrent/linear.cu: the fused recurrent operators whose cell is linear in its
// state. Callers: scan.cpp, the XLA handlers, tests. Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

#include "core/recurrent/call.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_spec.hpp"

namespace exphil::cuda {

// Bytes of device memory that a call needs beside its tensors: a gradient's states in f32, where they are not
// given.
std::size_t recurrent_scratch(const core::RecurrentShape& shape);

// Compiles the kernels. The context must be current.
void prepare_recurrent(Context& context, const core::RecurrentShape& shape);

// Queued on `stream`: the operator, or with dh its gradient, on tensors in device memory. `scratch` holds
// recurrent_scratch() bytes, aligned to 256. The context must be current. Throws limit_exceeded for more
// blocks than a grid has.
void enqueue_recurrent(Context& context, CUstream stream, const core::RecurrentShape& shape,
                       const core::RecurrentOperands<CUdeviceptr>& operands, CUdeviceptr scratch);

// Every kernel of the family in f32, and some in each other type, for the tests that compile them.
std::vector<KernelSpec> recurrent_kernel_variants();

}  // namespace exphil::cuda
