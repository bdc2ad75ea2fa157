// Weights as they are stored (policy/layout.cuh), widened to f32 in registers, and what completes the sum of
// a row of them.
#pragma once

#include "kernels/common/device_math.cuh"
#include "kernels/policy/dims.cuh"

namespace exphil {
namespace policy {

// Four consecutive k of one row. int8: each byte is q + 128.
template <Stored kHow>
struct GroupOf {
  using Type = uint2;
};
template <>
struct GroupOf<Stored::f32> {
  using Type = float4;
};
template <>
struct GroupOf<Stored::tf32x3> {
  using Type = float4;
};
template <>
struct GroupOf<Stored::int8> {
  using Type = unsigned;
};
using Group = typename GroupOf<kNetwork.stored>::Type;

// A byte in the low bits of 2^23 is a float without a conversion, which would take a slower unit.
template <unsigned kByte>
__device__ __forceinline__ float widen_byte(unsigned four) {
  constexpr unsigned kTwoTo23 = 0x4b000000u;
  return __fsub_rn(__uint_as_float(__byte_perm(four, kTwoTo23, 0x7440u + kByte)), 8388608.0f + 128.0f);
}
__device__ __forceinline__ float widen_half(unsigned half) {
  if constexpr (kNetwork.stored == Stored::bf16) return __uint_as_float(half << 16);
  return device::half_to_float(static_cast<unsigned short>(half));
}

__device__ __forceinline__ float4 widen(float4 group) {
  return group;
}
__device__ __forceinline__ float4 widen(uint2 group) {
  return make_float4(widen_half(group.x & 0xffffu), widen_half(group.x >> 16), widen_half(group.y & 0xffffu),
                     widen_half(group.y >> 16));
}
__device__ __forceinline__ float4 widen(unsigned group) {
  return make_float4(widen_byte<0>(group), widen_byte<1>(group), widen_byte<2>(group), widen_byte<3>(group));
}

// The sum over a row's stored weights as the sum over the weights.
__device__ __forceinline__ float scaled(float sum, const float* scales, int row) {
  if constexpr (kNetwork.row_scales()) return __fmul_rn(sum, scales[row]);
  return sum;
}
// The same for a row behind a norm, which its factor has still to multiply; `mean` is that of the vector.
// kCentres: policy::Network::centres of the product.
template <bool kCentres>
__device__ __forceinline__ float centred(float sum, float row_sum, float mean) {
  return kCentres ? __fmaf_rn(-mean, row_sum, sum) : sum;
}
template <bool kCentres>
__device__ __forceinline__ float centred(float sum, const float* scales, const float* sums, int row,
                                         float mean) {
  return centred<kCentres>(scaled(sum, scales, row), kCentres ? sums[row] : 0.0f, mean);
}

}  // namespace policy
}  // namespace exphil
