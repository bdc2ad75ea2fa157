// Policies of every kind and gradient problems for them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/policy/gradient.hpp"

namespace exphil::test {

struct NamedPolicy {
  std::string name;
  std::shared_ptr<const core::PolicyWeights> weights;
};

// Each has what no other has: state-spaces with and without biases, without a convolution; LayerNorm, clipped
// dt, its mean or each channel's, decayed inputs, no input projection, two-layer heads, outputs that are the
// hidden state.
std::vector<NamedPolicy> small_policies();
// These, and small_gated_policies().
std::vector<NamedPolicy> every_small_policy();

struct PolicyGradCase {
  std::int64_t batch = 0, seq = 0;
  std::vector<float> frames, states;  // states are empty for a zero state
  std::vector<double> d_outs;         // of f32 values
  std::vector<float> d_outs_f32() const { return {d_outs.begin(), d_outs.end()}; }
  core::PolicySequences sequences() const;
};
PolicyGradCase policy_grad_case(const core::PolicyConfig& config, std::int64_t batch, std::int64_t seq,
                                bool with_state, std::uint64_t seed = 5);

// sum(outs d_outs) by policy_reference_step.
double reference_loss(const core::PolicyWeights& weights, const PolicyGradCase& c);

}  // namespace exphil::test
