// The launches of kernels/recurrent/linear.cu: the fused recurrent operators whose cell is linear in its
// state. Callers: scan.cpp. Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

#include "core/recurrent/call.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_spec.hpp"

namespace exphil::cuda {

// As the functions of the same kind in scan.hpp.
std::size_t linear_scratch(const core::RecurrentShape& shape);
void prepare_linear(Context& context, const core::RecurrentShape& shape);
void enqueue_linear(Context& context, CUstream stream, const core::RecurrentShape& shape,
                    const core::RecurrentOperands<CUdeviceptr>& operands, CUdeviceptr scratch);

// Every kernel of the family in f32, and some in each other type, for the tests that compile them.
std::vector<KernelSpec> linear_kernel_variants();

}  // namespace exphil::cuda
