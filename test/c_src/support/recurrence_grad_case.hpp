// The gradient of a linear recurrence from known results: inputs from a seed, and the check against the
// definition in double. Used by the tests of core and cuda.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/associative/recurrence_gradient.hpp"
#include "support/associative_case.hpp"

namespace exphil::test {

// Owns the bytes that its problem points to.
struct RecurrenceGradCase {
  AssociativeCase scan;
  std::vector<unsigned char> h, dh;  // h: the recurrence's results, rounded to its type
  core::RecurrenceGradProblem problem() const;
};

RecurrenceGradCase recurrence_grad_case(core::Dtype dtype, const core::Shape& shape, int axis, bool reverse,
                                        bool initial);

using RecurrenceGradRun =
    std::function<void(const core::RecurrenceGradProblem&, const core::RecurrenceGradOutputs&)>;

// "" where `run` writes da, db and, with an initial state, its gradient within the type's tolerance and
// nothing behind them; else the first mismatch.
std::string recurrence_grad_mismatch(const RecurrenceGradCase& test, const RecurrenceGradRun& run);

}  // namespace exphil::test
