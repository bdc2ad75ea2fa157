// The scalar formulas of a policy step for its kernels: kernels/common/formulas.cuh over a float whose
// operators round one by one. A plain float would let the compiler fuse a multiplication with an addition in
// one kernel and not in another; here the same inputs give the same bits wherever a formula is inlined.
#pragma once

#include "kernels/common/formulas.cuh"
#include "kernels/policy/ptx.cuh"

namespace exphil {
namespace policy {

struct Strict {
  float v;
};
__device__ __forceinline__ Strict operator+(Strict p, Strict q) {
  return {__fadd_rn(p.v, q.v)};
}
__device__ __forceinline__ Strict operator-(Strict p, Strict q) {
  return {__fsub_rn(p.v, q.v)};
}
__device__ __forceinline__ Strict operator*(Strict p, Strict q) {
  return {__fmul_rn(p.v, q.v)};
}
__device__ __forceinline__ Strict operator/(Strict p, Strict q) {
  return {__fdividef(p.v, q.v)};
}

struct StrictMath {
  static __device__ __forceinline__ Strict set(Strict, float value) { return {value}; }
  // 2^(v log2 e) in hardware: its relative error, 2^-22 + |v| 2^-24, only grows where the result vanishes.
  static __device__ __forceinline__ Strict exp(Strict v) {
    return {exp2_approx(__fmul_rn(v.v, 1.4426950408889634f))};
  }
  static __device__ __forceinline__ Strict log1p(Strict v) { return {::log1pf(v.v)}; }
  static __device__ __forceinline__ Strict abs(Strict v) { return {::fabsf(v.v)}; }
  static __device__ __forceinline__ Strict max(Strict p, Strict q) { return {::fmaxf(p.v, q.v)}; }
  static __device__ __forceinline__ Strict min(Strict p, Strict q) { return {::fminf(p.v, q.v)}; }
};

__device__ __forceinline__ float silu(float v) {
  return formulas::silu<StrictMath>(Strict{v}).v;
}
__device__ __forceinline__ float softplus(float v) {
  return formulas::softplus<StrictMath>(Strict{v}).v;
}

// One output of the causal convolution, then silu. taps: oldest first; weights stand `stride` floats apart.
__device__ __forceinline__ float convolve(const float (&taps)[kTaps], const float* weights, int stride,
                                          float bias) {
  float sum = bias;
#pragma unroll
  for (int k = 0; k < kTaps; ++k) sum = __fmaf_rn(weights[k * stride], taps[k], sum);
  return silu(sum);
}

// Advances this lane's states of one channel by one step and returns the lane's part of <C, h>.
__device__ __forceinline__ float advance(float (&h)[kPerLane], const float (&a)[kPerLane], const float* b,
                                         const float* c, float dt, float dt_u) {
  float sum = 0.0f;
#pragma unroll
  for (int n = 0; n < kPerLane; ++n) {
    const float decay = StrictMath::exp(Strict{__fmul_rn(dt, a[n])}).v;
    h[n] = __fmaf_rn(decay, h[n], __fmul_rn(dt_u, b[n]));
    sum = __fmaf_rn(c[n], h[n], sum);
  }
  return sum;
}

// Adds the parts of the kLanes lanes of a channel; every one of them gets the sum.
__device__ __forceinline__ float add_lanes(float part) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    part = __fadd_rn(part, __shfl_xor_sync(0xffffffffu, part, offset));
  }
  return part;
}

// y = (<C, h> + D u) silu(z)
__device__ __forceinline__ float gate(float read_out, float d, float u, float gate_value) {
  return __fmul_rn(__fmaf_rn(d, u, read_out), gate_value);
}

}  // namespace policy
}  // namespace exphil
