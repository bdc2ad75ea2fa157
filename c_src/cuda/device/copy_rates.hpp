// The device's memory and its link as ceilings for benchmarks: see core/copy_rates.hpp. Used by the backend.
// Any thread.
#pragma once

#include "core/copy_rates.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// Large copies from and to pinned memory, and inside the device's, timed by events.
core::CopyRates measure_copy_rates(Context& context);

}  // namespace exphil::cuda
