// Gradients of what all sequences and all steps share (a, d, dt_bias, constant b and c) where a call is cut
// into parts: each part has its own sum, and the sums are added up. Pure functions; any thread.
#pragma once

#include <vector>

#include "core/scan/shape.hpp"

namespace exphil::core {

// Those that the gradient of this shape has.
std::vector<ScanOperand> shared_gradients(const ScanShape& shape);

// to += from, number by number, in the operand's type.
void add_numbers(const Operand& operand, const void* from, void* to);

}  // namespace exphil::core
