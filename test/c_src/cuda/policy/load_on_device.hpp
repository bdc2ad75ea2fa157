// A policy on the first device, real or fake.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "cuda/device/context.hpp"
#include "cuda/policy/loader.hpp"

namespace exphil::test {

// max_sessions: of core::PolicyOptions.
inline std::unique_ptr<core::Policy> load_on_device(std::shared_ptr<const core::PolicyWeights> weights,
                                                    std::int64_t max_sessions) {
  core::PolicyOptions options;
  options.max_sessions = max_sessions;
  return cuda::load_policy(cuda::Context::open(0), std::move(weights), options);
}
// With room for 64 sessions.
inline std::unique_ptr<core::Policy> load_64_on_device(std::shared_ptr<const core::PolicyWeights> weights) {
  return load_on_device(std::move(weights), 64);
}

}  // namespace exphil::test
