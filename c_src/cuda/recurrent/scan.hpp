// The fused recurrent operators (core/recurrent/call.hpp) on a CUDA device. Any thread.
#pragma once

#include "core/recurrent/call.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// The complete call, or that of the gradient: tensors in host memory, copied there and back. Throws
// unsupported for gru_scan and lstm_scan.
void run_recurrent(Context& context, const core::RecurrentCall& call);

}  // namespace exphil::cuda
