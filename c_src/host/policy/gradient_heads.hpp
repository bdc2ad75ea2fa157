// What a recurrence over heads passes back. Used by host/policy/gradient_backward.cpp; one call at a time.
#pragma once

#include <array>

#include "host/policy/gradient_forward.hpp"
#include "host/policy/gradient_vectors.hpp"

namespace exphil::host {

// A phase of the block, as the forward pass left it, and where its gradients go.
struct RecordedPhase {
  const PackedPhase& packed;
  const core::Network& network;
  const SequenceGroup& group;
  const MatrixRows* at;  // of each vector
  // By PhaseWeightName, in the row of the group's first sequence; null where there is none. row_floats: from
  // one sequence's row to the next.
  std::array<float*, 3> sums;
  std::int64_t row_floats;
  VectorGradients& vectors;
  float* sum(PhaseWeightName name, std::int64_t sequence) const {
    return sums[name] == nullptr ? nullptr : sums[name] + sequence * row_floats;
  }
};

void phase_back(const core::HeadRecurrence& phase, const RecordedPhase& recorded);

}  // namespace exphil::host
