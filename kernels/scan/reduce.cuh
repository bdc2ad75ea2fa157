// The sum over the lanes that share a channel, for the general and the wide kernel. The order of the sum
// determines the bits of the result. Included by kernels only; every lane of the warp calls it.
#pragma once

#include "kernels/common/device_math.cuh"

namespace exphil {
namespace scan {

// Sums `parts`, one for each of `Steps` steps, over the lanes of a channel; lane j gets the sum of step j.
// Each level adds neighbours and halves the number of values left: Steps - 1 shuffles in all, where a
// butterfly for every step would take Steps log2(Lanes).
template <int Lanes, int Steps, int Width = 1>
EXPHIL_DEVICE float reduce_lanes(float (&parts)[Steps], int part) {
  if constexpr (Width < Lanes) {
    if constexpr (Width < Steps) {
      const bool odd = part & Width;
#pragma unroll
      for (int i = 0; i < Steps / (2 * Width); ++i) {
        const float keep = odd ? parts[2 * i + 1] : parts[2 * i];
        const float send = odd ? parts[2 * i] : parts[2 * i + 1];
        parts[i] = __fadd_rn(keep, __shfl_xor_sync(0xffffffffu, send, Width));
      }
    } else {
      parts[0] = __fadd_rn(parts[0], __shfl_xor_sync(0xffffffffu, parts[0], Width));
    }
    return reduce_lanes<Lanes, Steps, 2 * Width>(parts, part);
  }
  return parts[0];
}

}  // namespace scan
}  // namespace exphil
