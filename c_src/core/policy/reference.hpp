// The oracle for a policy: one agent, one frame at a time, in double. Readable, never optimised.
#pragma once

#include <vector>

#include "core/policy/config.hpp"

namespace exphil::core {

struct PolicyReferenceState {
  explicit PolicyReferenceState(const PolicyConfig& config)
      : ssm(static_cast<std::size_t>(config.ssm_floats())),
        conv(static_cast<std::size_t>(config.conv_floats())),
        decays_input(config.spec.carried_decays_input()) {}
  std::vector<double> ssm, conv;  // laid out as in core/policy/policy.hpp
  bool decays_input;              // PolicySpec::decays_input of the sequence that the state runs through
};

// h = input_proj(obs); for each layer h += mixer(norm(h)); out = heads(norm_f(h)), as config.spec says.
void policy_reference_step(const PolicyWeights& weights, PolicyReferenceState& state, const float* obs,
                           double* out);

// Runs a window from a zero state and returns the outputs of all its frames, {seq, d_output}.
void policy_reference_window(const PolicyWeights& weights, const float* frames, std::int64_t seq,
                             double* outs);

}  // namespace exphil::core
