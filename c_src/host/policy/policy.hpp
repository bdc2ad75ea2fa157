// A policy resident in host memory (core/policy/policy.hpp): packed weights, states as plain buffers, and
// pooled workspaces, so that calls on different states run concurrently without allocating.
#pragma once

#include <memory>

#include "core/policy/policy.hpp"

namespace exphil::host {

std::unique_ptr<core::Policy> make_policy(const core::PolicyWeights& weights,
                                          const core::PolicyOptions& options);

}  // namespace exphil::host
