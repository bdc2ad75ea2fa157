// A selective scan on host tensors: what CudaBackend::scan calls. Inputs are pageable (BEAM binaries) or
// pinned; results too, and pinned ones are written by the device directly.
//
// The inputs of the whole call form one image (operand_image.hpp). Several threads copy it piece by piece
// through a ring of pinned blocks to the device; as soon as a slice of the batch is there its kernel starts,
// and its results come back while later slices are still on their way in. The result does not depend on the
// slicing.
#pragma once

#include "core/scan/call.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// Returns when the results are written; those whose addresses are null are left out. Any thread. Throws
// core::Error.
void run_scan(Context& context, const core::ScanCall& call);

}  // namespace exphil::cuda
