// What every backend's gradient of a policy must give: the oracle's numbers, and the same bits in every run
// and in every batch.
#pragma once

#include <functional>
#include <vector>

#include "core/policy/gradient.hpp"
#include "support/policy_grad_case.hpp"

namespace exphil::test {

// Of one policy: host::policy_grad, or a device's.
using PolicyGrad = std::function<void(const core::PolicySequences& sequences, const float* d_outs,
                                      const core::PolicyGradOutputs& outputs)>;

struct PolicyGradResult {
  core::PolicyValues<float> weights;
  std::vector<float> frames, outs, states, d_states;
};

PolicyGradResult run_policy_grad(const PolicyGrad& grad, const core::PolicyWeights& weights,
                                 const PolicyGradCase& c, bool forward_only = false);

bool same_bits(const std::vector<float>& p, const std::vector<float>& q);
// Of the weights' gradient, the frames', the states' and the outputs.
bool same_bits(const PolicyGradResult& p, const PolicyGradResult& q);

// Outputs, states and all gradients against the float64 oracle.
void check_policy_grad(const PolicyGrad& grad, const core::PolicyWeights& weights, const PolicyGradCase& c,
                       double tolerance = 2e-5);

// Outputs, states and the gradient of frames of a sequence have the same bits alone and in this batch; a
// second run gives the bits of the first.
void check_policy_grad_bits(const PolicyGrad& grad, const core::PolicyWeights& weights,
                            const PolicyGradCase& c);

// NaN in one of three sequences leaves what belongs to the others the same bits.
void check_policy_grad_nan(const PolicyGrad& grad, const core::PolicyWeights& weights, std::int64_t seq);

}  // namespace exphil::test
