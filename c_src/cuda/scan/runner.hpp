// A selective scan on host tensors: what CudaBackend::scan calls. Inputs are pageable (BEAM binaries) or
// pinned; outputs too, and pinned ones are written by the device directly.
//
// The inputs of the whole call form one image: what all sequences share, then slices of the batch, each with
// its x, dt, z, b, c and initial state. Several threads copy the image piece by piece through a ring of
// pinned blocks to the device; as soon as a slice is there its kernel starts, and its results come back while
// later slices are still on their way in. The result does not depend on the slicing.
#pragma once

#include "core/scan/problem.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// Returns when the outputs are written. Any thread. Throws core::Error.
void run_scan(Context& context, const core::ScanProblem& problem, const core::ScanOutputs& outputs);

}  // namespace exphil::cuda
