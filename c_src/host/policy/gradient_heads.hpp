// What a recurrence over heads passes back. Used by host/policy/gradient_backward.cpp; one call at a time.
#pragma once

#include "host/policy/gradient_forward.hpp"
#include "host/policy/gradient_sums.hpp"
#include "host/policy/gradient_vectors.hpp"

namespace exphil::host {

// A phase of the block, as the forward pass left it, and where its gradients go.
struct RecordedPhase {
  const PackedPhase& packed;
  const core::Network& network;
  const SequenceGroup& group;
  const MatrixRows* at;  // of each vector
  const SequenceSums& sums;
  VectorGradients& vectors;
  float* d_states = nullptr;  // as in core::PolicyGradOutputs
  // Of a sequence of the group; null where it is not wanted.
  float* d_state(core::StateId id, std::int64_t sequence) const {
    return state_part(d_states, group, sequence, network, id);
  }
  // Null where there is no such weight.
  float* sum(PhaseWeightName name, std::int64_t sequence) const {
    return sums.phase.weights[name].id == core::kNone ? nullptr : sums.of(sequence, name);
  }
};

void phase_back(const core::HeadRecurrence& phase, const RecordedPhase& recorded);

}  // namespace exphil::host
