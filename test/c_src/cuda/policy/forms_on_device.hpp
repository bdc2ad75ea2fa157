// Checks of several forms of a policy on a GPU, alike for every trunk.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/policy/rounding.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "support/case_sample.hpp"
#include "support/catch.hpp"
#include "support/policy_forms.hpp"
#include "support/random_sessions.hpp"

namespace exphil::test {

// Every call of these weights; see check_policy_form.
inline void check_on_device(const std::shared_ptr<const core::PolicyWeights>& weights, std::int64_t frames,
                            const std::vector<std::int64_t>& batches) {
  const auto policy = load_on_device(weights, 400);
  check_policy_form(*policy, *weights, frames, batches);
}

// 12,000 random operations (EXPHIL_SESSION_OPERATIONS) over these forms, each in every precision.
inline void check_random_sessions_on_device(const std::vector<PolicyForm>& forms) {
  const auto operations = session_operations(12'000) / static_cast<std::int64_t>(forms.size());
  for (const PolicyForm& form : forms) {
    INFO(form.name);
    std::vector<std::shared_ptr<core::Policy>> policies;
    for (auto& weights : in_every_precision(*form.weights)) policies.push_back(load_on_device(weights, 400));
    check_random_sessions(policies, operations, 7);
  }
}

// Every call of each form in each precision but f32: 12 frames, a batch of 5. A sample
// (EXPHIL_CASES_EVERY) has several forms and precisions.
inline void check_rounded_on_device(const std::vector<PolicyForm>& forms) {
  CaseSample cases;
  for (const PolicyForm& form : forms) {
    for (const auto precision :
         {core::Precision::bf16, core::Precision::f16, core::Precision::int8, core::Precision::tf32x3}) {
      if (!cases.take()) continue;
      INFO(form.name << " " << core::precision_name(precision));
      check_on_device(std::make_shared<core::PolicyWeights>(core::rounded_weights(*form.weights, precision)),
                      12, {5});
    }
  }
}

}  // namespace exphil::test
