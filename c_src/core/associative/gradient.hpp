// The gradient of an associative scan, computed by scans of the backend and elementwise work around them.
//
//   cumsum              dx_t = dy_t + dx_(t+1): the cumulative sum in the other direction
//   linear_recurrence   db_t = dy_t + conj(a_(t+1)) db_(t+1);  da_t = db_t conj(y_(t-1))
//   cumprod             dx_t = y_(t-1) s_t with s_t = dy_t + x_(t+1) s_(t+1): exact where elements are 0
//   cummax, cummin      dx_t = the sum of dy from t until the extremum changes, if the extremum changes at t;
//                       else 0. The first of equal extrema receives the gradient. A NaN is the last extremum.
//
// t counts in scan order. With Direction::both the gradients of the two directions are added. The gradient of
// a complex tensor is dL/dRe + i dL/dIm.
#pragma once

#include <functional>

#include "core/associative/problem.hpp"

namespace exphil::core {

struct AssociativeGradInputs {
  AssociativeInputs scan;
  TensorView dy;                         // of the shape and type of x
  std::optional<TensorView> dy_reverse;  // with Direction::both only
};

struct AssociativeGradProblem {
  AssociativeProblem scan;
  const void *dy = nullptr, *dy_reverse = nullptr;
};

// Host memory, caller-owned, of the shape and type of x. `a` is for the linear recurrence alone.
struct AssociativeGradOutputs {
  void *x = nullptr, *a = nullptr;
};

// Throws core::Error naming "dy", "dy_reverse" or what validate_associative names; unsupported for integers.
AssociativeGradProblem validate_associative_grad(AssociativeOp op, const AssociativeGradInputs& inputs,
                                                 const AssociativeOptions& options);

// A backend's associative scan.
using RunAssociative = std::function<void(const AssociativeProblem&, const AssociativeOutputs&)>;

// Everything but a cumulative sum in one direction is computed in f32 and rounded once. The bits do not
// depend on the thread count or on the rest of the batch if those of `run` do not. Any thread.
void associative_grad(const AssociativeGradProblem& problem, const AssociativeGradOutputs& outputs,
                      const RunAssociative& run);

}  // namespace exphil::core
