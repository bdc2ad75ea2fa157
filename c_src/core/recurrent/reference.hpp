// The fused recurrent operators and their gradients, sample by sample in double: the oracle of every backend.
// Readable, never optimised. Callers: tests. Any thread.
#pragma once

#include <vector>

#include "core/recurrent/call.hpp"

namespace exphil::core {

// Row-major, of the operands' shapes; empty where the operator has none.
struct RecurrentValues {
  std::vector<double> h, final_h, final_c;
};
struct RecurrentGradients {
  std::vector<double> x[kMaxRecurrentInputs], h0, c0, rh;
};

// Reads the inputs of the call, in host memory; its results are not touched.
RecurrentValues recurrent_reference(const RecurrentCall& call);
RecurrentGradients recurrent_grad_reference(const RecurrentCall& call);

}  // namespace exphil::core
