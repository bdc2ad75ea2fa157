// Puts a policy on a CUDA device. Used by cuda/backend.cpp; safe from any thread.
#pragma once

#include <memory>

#include "core/policy/policy.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// Uploads the weights, makes room for options.max_sessions states, compiles (or finds in the cache) and runs
// every kernel of the step path once, so that the first real step costs what every other one does. Throws
// out_of_memory, compile_failed, limit_exceeded (a dimension beyond what the kernels take).
std::unique_ptr<core::Policy> load_policy(std::shared_ptr<Context> context,
                                          std::shared_ptr<const core::PolicyWeights> weights,
                                          const core::PolicyOptions& options);

}  // namespace exphil::cuda
