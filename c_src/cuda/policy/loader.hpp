// Loads a policy onto a CUDA device. Used by cuda/backend.cpp; safe from any thread.
#pragma once

#include <memory>

#include "core/policy/policy.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// Uploads the weights, allocates options.max_sessions states, compiles every kernel of the step path (or
// loads it from the cache) and runs it once, so that the first real step is as fast as later ones. Throws
// out_of_memory, compile_failed, limit_exceeded (a dimension beyond the kernels' limit).
std::unique_ptr<core::Policy> load_policy(std::shared_ptr<Context> context,
                                          std::shared_ptr<const core::PolicyWeights> weights,
                                          const core::PolicyOptions& options);

}  // namespace exphil::cuda
