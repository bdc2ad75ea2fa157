// A policy with the weights that a backend computes with in another precision (core/precision.hpp).
// Pure function; any thread.
#pragma once

#include "core/policy/config.hpp"

namespace exphil::core {

// The matrices have rounded values, as f32, which every precision holds exactly; vectors stay as they are. A
// norm's weight is first multiplied into the columns of the matrix that follows, and LayerNorm's bias goes
// through that matrix into its bias, before anything is rounded: CUDA computes a norm so, and all backends
// have to hold the same numbers. The norm's own weight is 1 then, and its bias 0.
//
// The fingerprint depends on the precision: a state belongs to one precision of a policy. The checkpoint's
// parameters are gone, because these numbers are not the checkpoint's. f32 changes nothing; tf32x3 rounds
// nothing.
//
// Throws limit_exceeded naming the matrix, with the argument ":precision", where a weight is too large for
// f16 or not finite with int8.
PolicyWeights rounded_weights(const PolicyWeights& weights, Precision precision);

// A policy whose matrix states, those of Mamba's scans and of recurrences over heads, are kept in f16 or bf16
// between frames: on CUDA, where they bound what a batch of many agents takes. A CPU keeps f32. A state is
// rounded to the nearest after each frame, however many a call has; f16 limits it to -65504 and 65504.
// The fingerprint depends on it; f32 changes nothing.
//
// Throws invalid_argument, with the argument ":states", for another precision and where the policy has no
// matrix state.
PolicyWeights with_states(PolicyWeights weights, Precision states);

// The fingerprint of a policy of such states. f32: that of its weights.
std::uint64_t fingerprint_with_states(std::uint64_t of_weights, Precision states);

}  // namespace exphil::core
