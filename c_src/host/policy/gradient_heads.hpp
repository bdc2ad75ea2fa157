// What a recurrence over heads passes back. Used by host/policy/gradient_backward.cpp; one call at a time.
#pragma once

#include <array>

#include "host/policy/gradient_forward.hpp"
#include "host/policy/gradient_vectors.hpp"

namespace exphil::host {

struct RecordedHeads {
  const core::HeadRecurrence& phase;
  const PackedPhase& packed;
  const core::Network& network;
  const SequenceGroup& group;
  const MatrixRows* at;  // of each vector, as the forward pass left it
};

// sums: of a and d, in the row of the group's first sequence; null where there is none. row_floats: from one
// sequence's row to the next.
void heads_back(const RecordedHeads& heads, const std::array<float*, 2>& sums, std::int64_t row_floats,
                VectorGradients& vectors);

}  // namespace exphil::host
