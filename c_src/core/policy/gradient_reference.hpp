// The oracle of a policy's gradient: reverse mode through whole sequences, one frame and one phase at a time,
// in double. Readable, never optimised.
#pragma once

#include <vector>

#include "core/policy/gradient.hpp"

namespace exphil::core {

struct PolicyReferenceGradient {
  PolicyValues<double> weights;  // summed over the batch, in its order; of A_log where A follows from it
  std::vector<double> frames;    // {batch, seq, d_input}
  std::vector<double> states;    // {batch, state_floats}: of the states before the first frame
  std::vector<double> outs;      // {batch, seq, d_output}: the forward pass
};

// T: float, or double for training in float64. Without d_outs only the forward pass.
template <class T>
PolicyReferenceGradient policy_grad_reference(const PolicyConfig& config, const PolicyValues<T>& weights,
                                              const PolicySequences& sequences, const double* d_outs);

}  // namespace exphil::core
