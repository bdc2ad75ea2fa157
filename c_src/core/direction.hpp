// The direction in time of every operator that scans along an axis.
#pragma once

namespace exphil::core {

// both: y from the first to the last step and y_reverse from the last to the first, in one call.
enum class Direction { forward, reverse, both };

}  // namespace exphil::core
