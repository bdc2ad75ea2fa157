// The gradient of a selective scan on host tensors: what CudaBackend::scan_grad calls. The inputs are copied
// to the device by several threads, the batch as a whole: gradients that sequences share are sums over all of
// it.
#pragma once

#include "core/scan/gradient.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// Returns when the gradients that are wanted are written. Any thread. Throws core::Error.
void run_scan_grad(Context& context, const core::ScanGradProblem& problem,
                   const core::ScanGradOutputs& outputs);
// The same of a core::gradient_call.
void run_scan_grad(Context& context, const core::ScanCall& call);

}  // namespace exphil::cuda
