// The sum over the lanes that share a channel, as both scan kernels take it: the order is part of the
// result's bits. Included by kernels only; every lane of the warp calls it.
#pragma once

#include "kernels/common/device_math.cuh"

namespace exphil {
namespace scan {

// Sums `parts` over the lanes of a channel and deals the Group sums out: lane j gets that of step j. Each
// level adds neighbours and halves what is left to send: Group - 1 shuffles in all, where a butterfly for
// every step would take Group log2(Lanes).
template <int Lanes, int Group, int Width = 1>
EXPHIL_DEVICE float reduce_lanes(float (&parts)[Group], int part) {
  if constexpr (Width < Lanes) {
    if constexpr (Width < Group) {
      const bool odd = part & Width;
#pragma unroll
      for (int i = 0; i < Group / (2 * Width); ++i) {
        const float keep = odd ? parts[2 * i + 1] : parts[2 * i];
        const float send = odd ? parts[2 * i] : parts[2 * i + 1];
        parts[i] = __fadd_rn(keep, __shfl_xor_sync(0xffffffffu, send, Width));
      }
    } else {
      parts[0] = __fadd_rn(parts[0], __shfl_xor_sync(0xffffffffu, parts[0], Width));
    }
    return reduce_lanes<Lanes, Group, 2 * Width>(parts, part);
  }
  return parts[0];
}

}  // namespace scan
}  // namespace exphil
