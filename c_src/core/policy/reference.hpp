// The oracle for a policy: one agent, one frame at a time, in double, a loop over the network's phases.
// Readable, never optimised.
#pragma once

#include <vector>

#include "core/policy/config.hpp"

namespace exphil::core {

struct PolicyReferenceState {
  explicit PolicyReferenceState(const PolicyConfig& config);  // of a new agent
  std::vector<double> values;  // the parts of the network's states, one after another
  std::int64_t length;         // of the sequence that the state runs through: core::decays_input
};

void policy_reference_step(const PolicyWeights& weights, PolicyReferenceState& state, const float* obs,
                           double* out);

// Runs a window from the state of a new agent and returns the outputs of all its frames, {seq, d_output}.
void policy_reference_window(const PolicyWeights& weights, const float* frames, std::int64_t seq,
                             double* outs);

}  // namespace exphil::core
