// The fused recurrent operators (core/recurrent/call.hpp) and their gradients on a CUDA device. enqueue()
// also throws limit_exceeded for a dense cell whose state does not fit in a block's shared memory.
#pragma once

#include "core/recurrent/call.hpp"
#include "cuda/device/named_call.hpp"

namespace exphil::cuda {

using RecurrentOperator = DeviceOperator<core::RecurrentShape, core::RecurrentOperand>;
template <>
std::size_t RecurrentOperator::scratch(const core::RecurrentShape& shape);
template <>
void RecurrentOperator::prepare(Context& context, const core::RecurrentShape& shape);
template <>
void RecurrentOperator::enqueue(Context& context, CUstream stream, const core::RecurrentShape& shape,
                                const core::RecurrentOperands<CUdeviceptr>& operands, CUdeviceptr scratch);

}  // namespace exphil::cuda
