// Back through time: what the phases of a walk (host/policy/phases.hpp) pass back, from the last frame to the
// first. Used by host/policy/gradient.cpp; one call at a time.
#pragma once

#include <cstddef>

#include "host/policy/gradient_forward.hpp"
#include "host/policy/gradient_sums.hpp"
#include "host/policy/gradient_vectors.hpp"

namespace exphil::host {

// Phases [first, last] of a block, after their forward pass.
struct WalkedPhases {
  const core::Network& network;
  const SequenceGroup& group;
  const GradientRecord& record;
  const core::Block& block;
  std::size_t block_index = 0;  // of PackedWeights::blocks()
  std::size_t first = 0, last = 0;
  float* d_states = nullptr;  // as in core::PolicyGradOutputs
};

// Completes the gradients of the vectors that the phases write and read. Those of the products' weights are
// the caller's to add. Throws unsupported for phases that are not walked.
void walk_back(const WalkedPhases& phases, const BlockSums& sums, VectorGradients& vectors);

}  // namespace exphil::host
