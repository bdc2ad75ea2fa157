// The sums of a policy's products and norms. The order of a dot product is that of kernels/common/dot.cuh.
//
// Sums for a norm are always computed by one warp: lane l sums elements l, l + 32, ... (squares by fma),
// then the lanes are added as a butterfly (16, 8, 4, 2, 1), which gives every lane the same bits. So is the
// sum over each segment of what a mean adds.
//
// Only explicitly rounded intrinsics are used: the compiler may fuse a plain a * b + c in one kernel and not
// in another.
#pragma once

#include "kernels/common/dot.cuh"
#include "kernels/policy/dims.cuh"
#include "kernels/policy/warp.cuh"
#include "kernels/policy/weights.cuh"

namespace exphil {
namespace policy {

// A short dot product by one thread in the canonical order; weights are `stride` groups apart.
template <int kCount>
__device__ __forceinline__ float dot_short(const Group* weights, int stride, const float4* values) {
  float total = 0.0f;
#pragma unroll
  for (int first = 0; first < kCount / 4; first += kSegment / 4) {
    float sum = 0.0f;
#pragma unroll
    for (int k = first; k < least(first + kSegment / 4, kCount / 4); ++k) {
      sum = dot4(widen(weights[k * stride]), values[k], sum);
    }
    total = __fadd_rn(total, sum);
  }
  return total;
}

// The factor by which a norm scales a vector of kValues values, padded to kSize with zeros, and their mean
// with LayerNorm, computed by a warp; every lane gets them. In f32 the mean needs no subtraction afterwards:
// the rows of the matrix that follows sum up to zero (c_src/cuda/policy/fold.hpp).
struct NormFactors {
  float scale, mean;
};
template <Norm kNorm, int kValues, int kSize>
__device__ __forceinline__ NormFactors norm_factors(const float* values, float epsilon) {
  constexpr int kEach = kSize / 32, kHeld = kSize % 32 == 0 && kEach <= 16 ? kEach : 0;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float held[kHeld > 0 ? kHeld : 1];  // read once, all loads under way together
#pragma unroll
  for (int k = 0; k < kHeld; ++k) held[k] = values[lane + 32 * k];
  const auto each = [&](auto call) __attribute__((always_inline)) {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int k = 0; k < kHeld; ++k) call(lane + 32 * k, held[k]);
    } else {
#pragma unroll 8
      for (int i = lane; i < kSize; i += 32) call(i, values[i]);
    }
  };
  float mean = 0.0f, sum = 0.0f;
  if constexpr (kNorm == Norm::layer) {
    each([&](int, float value) __attribute__((always_inline)) { mean = __fadd_rn(mean, value); });
    mean = __fmul_rn(warp_sum(mean), 1.0f / kValues);
  }
  each([&](int i, float value) __attribute__((always_inline)) {
    if constexpr (kNorm == Norm::layer) value = i < kValues ? __fsub_rn(value, mean) : 0.0f;
    sum = __fmaf_rn(value, value, sum);
  });
  return {rsqrtf(__fmaf_rn(warp_sum(sum), 1.0f / kValues, epsilon)), mean};
}

// A value of a diagonal product, from what its vector's norm has found.
__device__ __forceinline__ float diagonal(float value, NormFactors norm, float weight, float bias) {
  return __fmaf_rn(__fmul_rn(__fsub_rn(value, norm.mean), norm.scale), weight, bias);
}

// The mean of kValues values from the sums of its segments.
template <int kValues, int kSize>
__device__ __forceinline__ float mean_of_segments(const float* segments) {
  return __fmul_rn(add_segments<kSize / kSegment>(segments, 1), 1.0f / kValues);
}
// The sum of a segment of kValues values, one to a lane; `channel` is this lane's.
template <int kValues>
__device__ __forceinline__ float segment_sum(float value, int channel) {
  return warp_sum(channel < kValues ? value : 0.0f);
}

}  // namespace policy
}  // namespace exphil
