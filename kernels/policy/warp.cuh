// A thread's number, and sums over a warp: a butterfly (16, 8, 4, 2, 1), which gives every lane the same
// bits. Included by the kernels of a policy and of its gradient.
#pragma once

namespace exphil {
namespace policy {

__device__ __forceinline__ int thread() {
  return static_cast<int>(threadIdx.x);
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = __fadd_rn(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

// The sum over the kCount lanes of a channel; every lane gets it.
template <int kCount>
__device__ __forceinline__ float add_lanes(float part) {
#pragma unroll
  for (int offset = kCount / 2; offset > 0; offset /= 2) {
    part = __fadd_rn(part, __shfl_xor_sync(0xffffffffu, part, offset));
  }
  return part;
}

}  // namespace policy
}  // namespace exphil
