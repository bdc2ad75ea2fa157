// The oracle for a whole policy: one agent, one frame at a time, in double. Readable, never optimised.
#pragma once

#include <vector>

#include "core/policy/config.hpp"

namespace exphil::core {

struct PolicyReferenceState {
  explicit PolicyReferenceState(const PolicyConfig& config)
      : ssm(static_cast<std::size_t>(config.ssm_floats())),
        conv(static_cast<std::size_t>(config.conv_floats())) {}
  std::vector<double> ssm, conv;  // laid out as in core/policy/policy.hpp
};

// h = input_proj(obs); for each layer h += mixer(rms_norm(h)); out = head(rms_norm(h, norm_f)).
void policy_reference_step(const PolicyWeights& weights, PolicyReferenceState& state, const float* obs,
                           double* out);

}  // namespace exphil::core
