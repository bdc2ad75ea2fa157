// The oracle of the scan's gradient: every sequence forward, then backward through the formulas of
// kernels/common/formulas.cuh, one scalar loop. Readable, never optimised. Tests compare every backend with
// it.
#pragma once

#include <vector>

#include "core/scan/gradient.hpp"

namespace exphil::core {

// The gradient of each operand in its own shape; complex ones as interleaved pairs. Empty where the scan has
// no such operand; that of initial_state is always present.
template <class T>
struct ScanGradValues {
  std::vector<T> x, dt, a, b, c, d, z, dt_bias, initial_state;
};

// All arithmetic in double on the (rounded) inputs. `states` of the problem are not read.
ScanGradValues<double> scan_grad_reference(const ScanGradProblem& problem);

// The same loop in float throughout.
ScanGradValues<float> scan_grad_reference_f32(const ScanGradProblem& problem);

}  // namespace exphil::core
