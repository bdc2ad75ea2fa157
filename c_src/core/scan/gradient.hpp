// The gradient of a selective scan, validated: its inputs beside the scan's operands, and the destination of
// each gradient. Backends take only ScanGradProblems and do not check again. Plain data: safe to share while
// the caller's tensors are valid.
//
// L is a real function of y (and of the final state), dL/dy = dy and dL/dh_T = d_final_state. The gradient of
// a complex tensor is dL/dRe + i dL/dIm. A number that is used several times (A, D, dt_bias; b and c of a
// group or constant) receives the sum over its uses, in an order that depends on the shapes only.
#pragma once

#include "core/scan/call.hpp"

namespace exphil::core {

struct ScanGradInputs {
  ScanInputs scan;
  TensorView dy;                            // {batch, seq, dim}, of x's type
  std::optional<TensorView> d_final_state;  // {batch, dim, state}; zeros where left out
  // {batch, seq, dim, state}, what scan_with_states returned for the same scan. Saves computing them again.
  std::optional<TensorView> states;
};

struct ScanGradProblem {
  ScanCall scan;  // direction: forward or reverse
  const void* dy = nullptr;
  const float *d_final_state = nullptr, *states = nullptr;  // null where left out
};

// Host memory, caller-owned, of the shape of the operand. x, dt, b, c and z have their operand's type; a, d,
// dt_bias and initial_state are f32, or c64 where the operand is. Null members are not computed. z, d,
// dt_bias must be null where the scan has no such operand.
struct ScanGradOutputs {
  void *x = nullptr, *dt = nullptr, *b = nullptr, *c = nullptr, *z = nullptr;
  float *a = nullptr, *d = nullptr, *dt_bias = nullptr, *initial_state = nullptr;
};

// Throws core::Error naming the argument ("dy", ":d_final_state", "states", and those of validate_scan).
ScanGradProblem validate_scan_grad(const ScanGradInputs& inputs, const ScanOptions& options);

// The same as a call: the table of core/scan/operands.hpp with the addresses of everything that comes in and
// of the gradients that are wanted. Without y.
ScanCall gradient_call(const ScanGradProblem& problem, const ScanGradOutputs& outputs);

}  // namespace exphil::core
