// The CPU's gradient of a policy, as the checks of policy_grad_checks.hpp take it.
#pragma once

#include "host/policy/gradient.hpp"
#include "support/policy_grad_checks.hpp"

namespace exphil::test {

inline PolicyGrad on_host(const core::PolicyWeights& weights) {
  return [&weights](const core::PolicySequences& sequences, const float* d_outs,
                    const core::PolicyGradOutputs& outputs) {
    host::policy_grad(weights, sequences, d_outs, outputs);
  };
}

}  // namespace exphil::test
