// What one block of a team of TEAM blocks has of each vector. Compiled with -D: TEAM.
#pragma once

#include "kernels/policy/dims.cuh"
#include "kernels/policy/team_plan.cuh"

namespace exphil {
namespace policy {

// The channels of a vector that are a block's own.
constexpr int own_of(int vector) {
  return own_channels(kNetwork, TEAM, vector);
}
// Whether a channel, of those that a block may have, is one of the vector's: the last blocks may have fewer.
template <int kVector>
__device__ __forceinline__ bool has_channel(int channel) {
  return own_of(kVector) * TEAM == size_of(kVector) || channel < size_of(kVector);
}
// The segments of a whole vector: the parts of a dot product.
constexpr int segments_of(int vector) {
  return size_of(vector) / kSegment;
}

}  // namespace policy
}  // namespace exphil
