// States of new agents of a policy, for tests of batches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/policy/policy.hpp"

namespace exphil::test {

struct AgentStates {
  AgentStates(core::Policy& policy, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      own.push_back(policy.new_state());
      all.push_back(own.back().get());
    }
  }
  // Their values, one agent after another, behind what was found before.
  void read(core::Policy& policy, std::vector<float>* found) const {
    std::vector<float> values(static_cast<std::size_t>(policy.config().state_floats()));
    for (core::State* state : all) {
      policy.read_state(*state, values.data());
      found->insert(found->end(), values.begin(), values.end());
    }
  }
  std::vector<std::unique_ptr<core::State>> own;
  std::vector<core::State*> all;
};

}  // namespace exphil::test
