// The linear systems of the kernels with a full matrix A: row i in lane i of a warp. Gauss-Jordan elimination
// with partial pivoting: rows are not moved, a lane remembers whether its row has been a pivot. Included by
// those kernels only; every lane of the warp calls it.
#pragma once

#include "kernels/common/device_math.cuh"

namespace exphil {
namespace scan {

constexpr unsigned kAll = 0xffffffffu;

// The lane with the largest key; keys carry their lane in the low bits, so they all differ.
EXPHIL_DEVICE int lane_of_largest(unsigned key) {
#if __CUDA_ARCH__ >= 800
  key = __reduce_max_sync(kAll, key);
#else
#pragma unroll
  for (int width = 16; width > 0; width /= 2) key = max(key, __shfl_xor_sync(kAll, key, width));
#endif
  return static_cast<int>(key & 31u);
}

// Solves the system whose row i (m, r) is in lane i; returns unknown i to lane i.
EXPHIL_DEVICE float solve(float (&m)[STATE], float r, int lane) {
  bool done = lane >= STATE;
  int source = lane;
  float own_inverse = 0.0f;
#pragma unroll
  for (int k = 0; k < STATE; ++k) {
    // Bits of a positive float order as it does; the last six are replaced by "not done" and the lane.
    const unsigned key =
        done ? 0u : (__float_as_uint(fabsf(m[k])) & ~63u) | 32u | static_cast<unsigned>(lane);
    const int pivot = lane_of_largest(key);
    const float scale_k = 1.0f / __shfl_sync(kAll, m[k], pivot);
    const float pivot_r = __shfl_sync(kAll, r, pivot);
    const bool is_pivot = lane == pivot;
    const float factor = is_pivot ? 0.0f : -__fmul_rn(m[k], scale_k);
#pragma unroll
    for (int j = k + 1; j < STATE; ++j) m[j] = __fmaf_rn(factor, __shfl_sync(kAll, m[j], pivot), m[j]);
    r = __fmaf_rn(factor, pivot_r, r);
    if (is_pivot) done = true, own_inverse = scale_k;
    if (lane == k) source = pivot;
  }
  return __shfl_sync(kAll, __fmul_rn(r, own_inverse), source);
}

}  // namespace scan
}  // namespace exphil
