// A selective scan on host tensors, called by CudaBackend::scan. Inputs are pageable (BEAM binaries) or
// pinned; so are results, and the device writes pinned ones directly.
//
// The inputs of the call form one image (operand_image.hpp). Several threads copy it piece by piece through a
// ring of pinned blocks to the device. A slice's kernel starts as soon as the slice has arrived, and its
// results are copied back while later slices are still being copied in. The result does not depend on the
// slicing.
#pragma once

#include "core/scan/call.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// Returns when the results are written; results with null addresses are left out. Any thread. Throws
// core::Error.
void run_scan(Context& context, const core::ScanCall& call);

}  // namespace exphil::cuda
