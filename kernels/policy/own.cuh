// What one block of a team of TEAM blocks has of each vector. Compiled with -D: TEAM.
#pragma once

#include "kernels/policy/dims.cuh"
#include "kernels/policy/team_plan.cuh"

namespace exphil {
namespace policy {

// The channels of a vector that are a block's own.
constexpr int own_of(int vector) {
  return own_channels(size_of(vector), TEAM);
}
// The segments of a whole vector: the parts of a dot product.
constexpr int segments_of(int vector) {
  return size_of(vector) / kSegment;
}

}  // namespace policy
}  // namespace exphil
