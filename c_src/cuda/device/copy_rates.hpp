// The copy rates of the device's memory and its link, upper bounds for benchmarks: see core/copy_rates.hpp.
// Called by nif/tools. Any thread.
#pragma once

#include "core/copy_rates.hpp"

namespace exphil::cuda {

// Large copies from and to pinned memory, and within the device, timed by events. Takes some tenths of a
// second and meanwhile some hundred MB. Throws backend_unavailable, out_of_memory, device_lost.
core::CopyRates measure_copy_rates(int device);

}  // namespace exphil::cuda
