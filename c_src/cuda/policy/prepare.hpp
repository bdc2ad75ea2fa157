// Compiles the most likely kernels of a policy in parallel; others are compiled on first use. Used by
// cuda/policy/policy.cpp when a policy is loaded; safe from any thread.
#pragma once

#include "cuda/device/context.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/tuning.hpp"

namespace exphil::cuda {

// Returns true, so that a member can be initialised by it.
bool prepare_kernels(Context& context, const PolicyDims& dims, const PolicyTuning& tuning);

}  // namespace exphil::cuda
