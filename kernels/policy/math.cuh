// The scalar formulas of a policy step for its kernels: kernels/common/formulas.cuh over device::Real, so
// that the same inputs give the same bits wherever a formula is inlined.
#pragma once

#include "kernels/common/device_math.cuh"
#include "kernels/policy/dot.cuh"
#include "kernels/policy/ptx.cuh"

namespace exphil {
namespace policy {

using device::Real;

// exp is 2^(v log2 e) in hardware: its relative error is 2^-22 + |v| 2^-24, so it is large only where the
// result is tiny.
struct Math : device::Math {
  static EXPHIL_DEVICE Real log1p(Real v) { return {::log1pf(v.v)}; }
};

__device__ __forceinline__ float silu(float v) {
  return formulas::silu<Math>(Real{v}).v;
}
__device__ __forceinline__ float softplus(float v) {
  return formulas::softplus<Math>(Real{v}).v;
}
// dt of a channel from its projection.
__device__ __forceinline__ float activate_dt(float v) {
  const float dt = softplus(v);
  if constexpr (kForm.clips_dt) return fminf(fmaxf(dt, __uint_as_float(DT_MIN)), __uint_as_float(DT_MAX));
  return dt;
}

// dt of channel c from its row of x_proj's output. dt_proj: groups {rank / 4, stride}; scales: of its rows.
__device__ __forceinline__ float activated_dt(const void* dt_proj, int stride, const float* scales,
                                              const float* projection, int c, float bias) {
  const float sum = dot_short<kRank>(static_cast<const Group*>(dt_proj) + c, stride,
                                     reinterpret_cast<const float4*>(projection));
  return activate_dt(__fadd_rn(scaled(sum, scales, c), bias));
}

// One output of the causal convolution, then silu. taps: oldest first; weights are `stride` floats apart.
__device__ __forceinline__ float convolve(const float (&taps)[kTaps], const float* weights, int stride,
                                          float bias) {
  float sum = bias;
#pragma unroll
  for (int k = 0; k < kTaps; ++k) sum = __fmaf_rn(weights[k * stride], taps[k], sum);
  return silu(sum);
}

// What one step does to one state: h' = decay h + input. dt_u: the input times the dt that scales it.
struct StateStep {
  float decay, input;
};
__device__ __forceinline__ StateStep state_step(float a, float b, float dt, float dt_u, bool decays) {
  const float decay = formulas::decay<formulas::Discretization::zoh, Math>(Real{__fmul_rn(dt, a)}).v;
  float input = __fmul_rn(dt_u, b);
  if constexpr (kForm.decays_input) input = decays ? __fmul_rn(decay, input) : input;
  return {decay, input};
}
__device__ __forceinline__ float next_state(float h, StateStep step) {
  return formulas::scaled_advance<formulas::Discretization::zoh, device::ScaledMath>(h, step.decay,
                                                                                     step.input);
}

// Advances this lane's states of one channel by one step and returns the lane's contribution to <C, h>.
__device__ __forceinline__ float advance(float (&h)[kPerLane], const float (&a)[kPerLane], const float* b,
                                         const float* c, float dt, float dt_u, bool decays) {
  float sum = 0.0f;
#pragma unroll
  for (int n = 0; n < kPerLane; ++n) {
    h[n] = next_state(h[n], state_step(a[n], b[n], dt, dt_u, decays));
    sum = __fmaf_rn(c[n], h[n], sum);
  }
  return sum;
}

// The sum over the kLanes lanes of a channel; every lane gets it.
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
