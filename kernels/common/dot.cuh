// The order in which the dot products of policies and of recurrences are summed. A result does not depend on
// the kernel that computed it: one agent alone, a batch, or an entire sequence give the same bits.
//
//   K is split into contiguous segments of 32 (padded with zeros). Each segment is summed from +0 by fma, in
//   the order of its elements. The segments are then added in order, starting from +0.
//
// A matrix-vector kernel assigns a thread to each (row, segment) and adds the segments afterwards: a chain of
// 32 + K / 32 dependent operations instead of K. A tiled matrix product keeps a second set of accumulators
// and adds it every 32 steps: one extra add for 32 fma.
//
// Only explicitly rounded intrinsics are used: the compiler may fuse a plain a * b + c in one kernel and not
// in another.
#pragma once

#include "kernels/common/segments.cuh"

namespace exphil {

__device__ __forceinline__ float dot4(float4 weight, float4 value, float sum) {
  sum = __fmaf_rn(weight.x, value.x, sum);
  sum = __fmaf_rn(weight.y, value.y, sum);
  sum = __fmaf_rn(weight.z, value.z, sum);
  return __fmaf_rn(weight.w, value.w, sum);
}

// The sum of segment sums that are `stride` floats apart.
template <int kCount>
__device__ __forceinline__ float add_segments(const float* sums, int stride) {
  float total = 0.0f;
#pragma unroll 16
  for (int s = 0; s < kCount; ++s) total = __fadd_rn(total, sums[s * stride]);
  return total;
}

}  // namespace exphil
