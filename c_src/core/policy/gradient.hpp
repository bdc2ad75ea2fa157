// The gradient of a policy by its weights over whole sequences: what comes in and what goes out, and who
// computes it. core/policy/gradient_reference.hpp is the oracle. Tensors are in host memory, f32, owned by
// the caller.
//
// With L a real function of all outputs, d_outs = dL/douts. Each weight receives the sum over frames and
// sequences, in an order that the shapes alone decide.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/policy/config.hpp"

namespace exphil::core {

// Each sequence starts from the state of a new agent, as a window does, or from a given one, as a session
// does.
struct PolicySequences {
  std::int64_t batch = 0, seq = 0;
  const float* frames = nullptr;  // {batch, seq, d_input}
  const float* states = nullptr;  // {batch, state_floats}, as in core/policy/policy.hpp; null: a new one

  // The length by which core::decays_input decides about these sequences: a carried state follows the
  // recurrence of the windows that the policy was trained on.
  std::int64_t length(const PolicyConfig& config) const { return states == nullptr ? seq : config.window; }
};

// What is null is not computed.
struct PolicyGradOutputs {
  PolicyValues<float>* weights = nullptr;  // zeros_of the policy's network
  float* frames = nullptr;                 // {batch, seq, d_input}
  float* outs = nullptr;                   // {batch, seq, d_output}
  float* states = nullptr;                 // {batch, state_floats}: after the last frame
  // {batch, state_floats}: the gradient of the states before the first frame, given or not.
  float* d_states = nullptr;
};

// The gradient of one policy's weights, on a backend (Backend::gradient). It needs no policy that plays. Any
// thread, several calls at once.
class PolicyGradient {
 public:
  virtual ~PolicyGradient() = default;
  virtual std::size_t resident_bytes() const = 0;  // held there between calls
  // The caller has checked the sequences: batch and seq are at least 1. Without d_outs {batch, seq, d_output}
  // only the forward pass. The same call gives the same bits in every run; the gradients of frames, the
  // outputs and the states of a sequence also in any batch.
  virtual void run(const PolicySequences& sequences, const float* d_outs,
                   const PolicyGradOutputs& outputs) const = 0;
};

}  // namespace exphil::core
