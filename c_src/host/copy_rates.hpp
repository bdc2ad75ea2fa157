// The copy rate of host memory for benchmarks: see core/copy_rates.hpp. Called by nif/tools. Any thread.
#pragma once

#include "core/copy_rates.hpp"

namespace exphil::host {

// Times large copies by all of the library's threads.
core::CopyRates measure_copy_rates();

}  // namespace exphil::host
