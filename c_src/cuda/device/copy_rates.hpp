// The device's memory and its link as ceilings for benchmarks: see core/copy_rates.hpp. Called by nif/tools.
// Any thread.
#pragma once

#include "core/copy_rates.hpp"

namespace exphil::cuda {

// Large copies from and to pinned memory, and inside the device's, timed by events. Takes some tenths of a
// second, and some hundred MB for as long. Throws backend_unavailable, out_of_memory, device_lost.
core::CopyRates measure_copy_rates(int device);

}  // namespace exphil::cuda
