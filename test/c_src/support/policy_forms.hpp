// A small policy in every form that a dialect may ask for, each switch alone and those of Edifice and ExPhil
// together, and what every backend must give for each: the reference's answers, and the same bits however a
// frame is run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/policy/policy.hpp"
#include "support/policy.hpp"

namespace exphil::test {

struct PolicyForm {
  std::string name;
  std::shared_ptr<const core::PolicyWeights> weights;
};

// `spec` gives the sizes; its biases are as it says.
std::vector<PolicyForm> policy_forms(const PolicySpec& spec);

// Steps, batches of these counts, prefill in parts, and windows of several lengths, alone and from a ring, of
// at most `frames` frames.
void check_policy_form(core::Policy& policy, const core::PolicyWeights& weights, std::int64_t frames,
                       const std::vector<std::int64_t>& batches);

}  // namespace exphil::test
