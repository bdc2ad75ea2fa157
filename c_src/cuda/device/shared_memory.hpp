// Device memory of somebody else in this process (EXLA's tensors), which a call reads. Any thread; the
// context must be current (ContextGuard).
#pragma once

#include "core/device_ranges.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// Throws invalid_argument, naming the range's argument, unless the driver says that every range is allocated
// memory of this context's device, and unsupported where the driver cannot say so. Memory may be freed after
// this: its owner keeps it until the call returns.
void require_shared_memory(Context& context, const core::DeviceRanges& ranges);

}  // namespace exphil::cuda
