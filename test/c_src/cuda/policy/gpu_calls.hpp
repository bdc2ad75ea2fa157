// Calls of a policy with results as values, for the tests on a GPU, which compare them by same_bits()
// (support/policy_grad_checks.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/policy/policy.hpp"
#include "support/policy_grad_checks.hpp"

namespace exphil::test {

using core::Policy;
using core::State;
using Floats = std::vector<float>;

inline Floats unset(std::int64_t count) {
  return Floats(static_cast<std::size_t>(count), std::nanf(""));
}

inline Floats read(Policy& policy, const State& state) {
  Floats all = unset(policy.config().state_floats());
  policy.read_state(state, all.data());
  return all;
}

inline Floats step(Policy& policy, State& state, const float* obs) {
  Floats out = unset(policy.config().d_output);
  State* pointer = &state;
  policy.step(&pointer, 1, obs, out.data());
  return out;
}

inline Floats prefill(Policy& policy, State& state, const float* frames, std::int64_t seq) {
  Floats out = unset(seq * policy.config().d_output);
  policy.prefill(state, frames, seq, out.data());
  return out;
}

}  // namespace exphil::test
