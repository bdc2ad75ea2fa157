// The gradient of a policy on the first device, real or fake, without the rest of the policy.
#pragma once

#include <memory>
#include <utility>

#include "cuda/policy/gradient.hpp"
#include "support/policy_grad_checks.hpp"

namespace exphil::test {

inline PolicyGrad gradient_on_device(std::shared_ptr<const core::PolicyWeights> weights) {
  const auto context = cuda::Context::open(0);
  const cuda::ContextGuard guard(*context);
  const auto gradient = std::make_shared<cuda::PolicyGradient>(context, std::move(weights));
  return [context, gradient](const core::PolicySequences& sequences, const float* d_outs,
                             const core::PolicyGradOutputs& outputs) {
    const cuda::ContextGuard current(*context);
    gradient->run(sequences, d_outs, outputs);
  };
}

}  // namespace exphil::test
