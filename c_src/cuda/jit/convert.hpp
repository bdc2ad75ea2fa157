// Tensors of halves as floats and back on a device: kernels/common/convert.cu. Callers: cuda/recurrent and
// cuda/ssd. Any thread.
#pragma once

#include <cuda.h>

#include <string>

#include "core/operands.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_spec.hpp"

namespace exphil::cuda {

// Flow::in widens, Flow::out narrows.
KernelSpec convert_spec(core::Dtype dtype, core::Flow flow);

// Queued on `stream`. Throws limit_exceeded naming `argument` for more blocks than a grid has.
void enqueue_convert(Context& context, CUstream stream, core::Dtype dtype, core::Flow flow, const void* from,
                     void* to, std::int64_t count, const std::string& argument);

}  // namespace exphil::cuda
