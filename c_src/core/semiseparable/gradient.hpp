// The gradient of an adaptive-rank semiseparable layer: of its input and of every weight. Computed on the CPU
// in double, one sequence after the other, so the bits depend only on the inputs. Callers: the NIF for layers
// of every backend, tests. Pure functions: any thread.
#pragma once

#include <vector>

#include "core/semiseparable/layer.hpp"

namespace exphil::core {

struct SemiseparableGradInput {
  SemiseparableInput forward;
  const float* dy = nullptr;  // {batch, seq, hidden}
  // The gradient of the loss with respect to the gate penalty, the mean of all gates.
  double d_penalty = 0;
};

// In the shapes of SemiseparableWeights; x {batch, seq, hidden}.
struct SemiseparableGrad {
  std::vector<double> x, gate_in, gate_in_bias, gate_out, gate_out_bias, u, v, conv, output, output_bias;
};

SemiseparableGrad semiseparable_grad(const SemiseparableWeights& weights,
                                     const SemiseparableGradInput& input);

// Throws invalid_argument naming "dy" unless it is f32 of x's shape.
SemiseparableGradInput validate_semiseparable_grad(const SemiseparableConfig& config, const TensorView& x,
                                                   const TensorView& dy, double d_penalty,
                                                   bool bidirectional);

}  // namespace exphil::core
