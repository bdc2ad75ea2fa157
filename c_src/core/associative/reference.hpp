// The oracle of the associative scans: the sequential definition, one loop, in double (floating point) or in
// wrapping 64-bit integers. Readable, never optimised. Tests compare every backend with it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/associative/problem.hpp"

namespace exphil::core {

// One direction of `problem`. Floating-point dtypes: doubles, c64 as interleaved pairs, from the (rounded)
// inputs. Throws invalid_argument for integers.
std::vector<double> associative_reference(const AssociativeProblem& problem, bool reverse);

// s32 and s64; sums wrap around in the problem's own width.
std::vector<std::int64_t> associative_reference_integer(const AssociativeProblem& problem, bool reverse);

// One direction as a plain scalar loop in f32: the baseline for speed-ups. f32 only, not compensated.
void associative_plain_loop(const AssociativeProblem& problem, bool reverse, float* y);

}  // namespace exphil::core
