// The operator of Mamba-2 (core/ssd/call.hpp) and its gradient on a CUDA device. b and c must begin at
// multiples of 16 bytes in device memory.
//
// The rows of each head's state are divided among blocks, which walk through time in order: the walk of
// kernels/policy/gradient_heads.cu, which gradients of policies share. The batch goes through in slices whose
// scratch is bounded; that changes no bit.
#pragma once

#include <vector>

#include "core/ssd/call.hpp"
#include "cuda/device/named_call.hpp"
#include "cuda/jit/kernel_spec.hpp"

namespace exphil::cuda {

using SsdOperator = DeviceOperator<core::SsdShape, core::SsdOperand>;
template <>
std::size_t SsdOperator::scratch(const core::SsdShape& shape);
template <>
void SsdOperator::prepare(Context& context, const core::SsdShape& shape);
template <>
void SsdOperator::enqueue(Context& context, CUstream stream, const core::SsdShape& shape,
                          const core::SsdOperands<CUdeviceptr>& operands, CUdeviceptr scratch);

// Every kernel of elements.cu in each type, and some of the walk, for the tests that compile them.
std::vector<KernelSpec> ssd_kernel_variants();

}  // namespace exphil::cuda
