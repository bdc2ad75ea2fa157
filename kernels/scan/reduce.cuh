// Sums over the lanes of a warp. The order of a sum decides the result's bits. Included by kernels only;
// every lane of the warp calls it.
#pragma once

#include "kernels/common/device_math.cuh"

namespace exphil {
namespace scan {

// Sums each of `parts` over `Lanes` lanes that are First apart: lane numbers 0, First, 2 First, ... of the
// group. Number j of them gets the sums of parts j, j + Lanes, ... in parts[0], parts[1], ..., or, where
// there are fewer parts than lanes, that of part j % Steps; returns the first. Each level adds neighbours and
// halves what is left to send: Steps - 1 shuffles in all, where a butterfly for every part would take Steps
// log2(Lanes). `part`: the lane's number, of which only the bits from First to Lanes First / 2 count.
template <int Lanes, int Steps, int First = 1, int Width = 1>
EXPHIL_DEVICE float reduce_lanes(float (&parts)[Steps], int part) {
  if constexpr (Width < Lanes) {
    if constexpr (Width < Steps) {
      const bool odd = part & (Width * First);
#pragma unroll
      for (int i = 0; i < Steps / (2 * Width); ++i) {
        const float keep = odd ? parts[2 * i + 1] : parts[2 * i];
        const float send = odd ? parts[2 * i] : parts[2 * i + 1];
        parts[i] = __fadd_rn(keep, __shfl_xor_sync(0xffffffffu, send, Width * First));
      }
    } else {
      parts[0] = __fadd_rn(parts[0], __shfl_xor_sync(0xffffffffu, parts[0], Width * First));
    }
    return reduce_lanes<Lanes, Steps, First, 2 * Width>(parts, part);
  }
  return parts[0];
}

}  // namespace scan
}  // namespace exphil
