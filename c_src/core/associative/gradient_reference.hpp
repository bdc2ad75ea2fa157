// The oracle of the gradients of associative scans: the contribution of each result to each element, from the
// definition, in double. Quadratic in the length, readable, never optimised.
#pragma once

#include <vector>

#include "core/associative/gradient.hpp"

namespace exphil::core {

struct AssociativeGradReference {
  std::vector<double> x, a;  // c64 as pairs; `a` is empty except for the linear recurrence
};

AssociativeGradReference associative_grad_reference(const AssociativeGradProblem& problem);

}  // namespace exphil::core
