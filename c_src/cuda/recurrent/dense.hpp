// gru_scan and lstm_scan on a CUDA device: the walks of walk.hpp, with the operator's layouts, halves and the
// gradient of r around them. Callers: scan.cpp. Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

#include "core/recurrent/call.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_spec.hpp"

namespace exphil::cuda {

// As the functions of the same kind in scan.hpp.
std::size_t dense_scratch(const core::RecurrentShape& shape);
void prepare_dense(Context& context, const core::RecurrentShape& shape);
void enqueue_dense(Context& context, CUstream stream, const core::RecurrentShape& shape,
                   const core::RecurrentOperands<CUdeviceptr>& operands, CUdeviceptr scratch);

// weights.cu and convert.cu, for the tests that compile them; walk.hpp has its own.
std::vector<KernelSpec> dense_kernel_variants();

}  // namespace exphil::cuda
