// The operator of core/ssd/call.hpp and its gradient, element by element in double: the oracle of every
// backend. Readable, never optimised. Callers: tests. Any thread.
#pragma once

#include <vector>

#include "core/ssd/call.hpp"

namespace exphil::core {

// The results of the call by operand, row-major: y and final_state, or the gradients of the operands that the
// call has. Empty where there is none.
using SsdValues = PerOperand<SsdOperand, std::vector<double>>;

// Read the inputs of the call, in host memory; its results are not touched.
SsdValues ssd_reference(const SsdCall& call);
SsdValues ssd_grad_reference(const SsdCall& call);

}  // namespace exphil::core
