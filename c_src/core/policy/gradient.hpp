// The gradient of a policy by its weights over whole sequences: what comes in and what goes out. Policy::grad
// computes it; core/policy/gradient_reference.hpp is the oracle. Plain data; host memory, f32, owned by the
// caller.
//
// With L a real function of all outputs, d_outs = dL/douts. Each weight receives the sum over frames and
// sequences, in an order that the shapes alone decide.
#pragma once

#include <cstdint>

#include "core/policy/config.hpp"

namespace exphil::core {

// Each sequence starts from a zero state, as a window does, or from a given one, as a session does.
struct PolicySequences {
  std::int64_t batch = 0, seq = 0;
  const float* frames = nullptr;  // {batch, seq, d_input}
  // {batch, n_layer, d_inner, d_state} and {batch, n_layer, d_inner, d_conv - 1}, as in
  // core/policy/policy.hpp; both or neither.
  const float *ssm = nullptr, *conv = nullptr;

  // PolicySpec::decays_input of these sequences.
  bool decays_input(const PolicySpec& spec) const {
    return ssm == nullptr ? spec.decays_input(seq) : spec.carried_decays_input();
  }
};

// What is null is not computed.
struct PolicyGradOutputs {
  PolicyValues<float>* weights = nullptr;  // zeros_like the policy's
  float* frames = nullptr;                 // {batch, seq, d_input}
  float* outs = nullptr;                   // {batch, seq, d_output}
  float *ssm = nullptr, *conv = nullptr;   // the states after the last frame
};

}  // namespace exphil::core
