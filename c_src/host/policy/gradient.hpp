// The gradient of a policy over whole sequences on the CPU, with the threads of core/work/parallel.hpp. See
// core/policy/gradient.hpp. Any thread; every call has memory of its own: beside the results, about what the
// activations of kGradientRows rows need. A call with a backward pass leaves it for the next one
// (host/simd/kept_buffer.hpp).
#pragma once

#include <functional>
#include <memory>

#include "core/policy/gradient.hpp"

namespace exphil::host {

// Sequences are taken together up to this many frames; a longer one alone.
inline constexpr std::int64_t kGradientRows = 2048;

// Sequences are checked by the caller: batch and seq at least 1. d_outs: {batch, seq, d_output}; null for the
// forward pass alone, which leaves outputs.weights and outputs.frames as they are. The same call gives the
// same bits in every run; the gradients of frames, the outputs and the states of a sequence also in any
// batch.
// between(first, rows), where given, is called between the two passes of rows [first, first + rows), with
// their outs in outputs.outs: it may write their d_outs.
void policy_grad(const core::PolicyWeights& weights, const core::PolicySequences& sequences,
                 const float* d_outs, const core::PolicyGradOutputs& outputs,
                 const std::function<void(std::int64_t, std::int64_t)>& between = {});

// The same as an object of a backend.
std::unique_ptr<core::PolicyGradient> make_gradient(std::shared_ptr<const core::PolicyWeights> weights);

}  // namespace exphil::host
