// The gradient of a linear recurrence whose results are known (kernels/associative/recurrence_gradient.cuh
// has the formulas). Callers: associative_grad, the XLA handlers. Any thread.
#pragma once

#include "core/associative/gradient.hpp"

namespace exphil::core {

struct RecurrenceGradInputs {
  TensorView a, h, dh;  // of one shape and type; h: the recurrence's results
  std::optional<TensorView> initial_state;
};

// Memory of the caller. `scan` is the recurrence, without x.
struct RecurrenceGradProblem {
  AssociativeProblem scan;
  const void *h = nullptr, *dh = nullptr;
};

// Caller-owned, of the shapes and the type of a and of initial_state. `initial` may be null.
struct RecurrenceGradOutputs {
  void *a = nullptr, *b = nullptr, *initial = nullptr;
};

// Throws core::Error naming "a", "h", "dh", "initial_state" or ":axis", as validate_associative does; for
// Direction::both invalid_argument.
RecurrenceGradProblem validate_recurrence_grad(const RecurrenceGradInputs& inputs,
                                               const AssociativeOptions& options);

// The scan of the gradient: f32 (c64 for c64), in the other direction. Its tensors are left to the caller.
AssociativeProblem recurrence_grad_scan(const RecurrenceGradProblem& problem);

// In host memory; `run` scans. Halves are computed in f32 and rounded once.
void recurrence_grad(const RecurrenceGradProblem& problem, const RecurrenceGradOutputs& outputs,
                     const RunAssociative& run);

}  // namespace exphil::core
