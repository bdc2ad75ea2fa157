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
__device__ __forceinline__ float sigmoid(float v) {
  return formulas::sigmoid<Math>(Real{v}).v;
}
__device__ __forceinline__ float softplus(float v) {
  return formulas::softplus<Math>(Real{v}).v;
}
// An output's value as its readers get it, from the sum of its row with the bias.
template <int kProduct, int kOutput>
__device__ __forceinline__ float activated(float v) {
  constexpr Output kOut = kNetwork.products[kProduct].out[kOutput];
  if constexpr (kOut.activation == Activation::relu) return device::rectified(v);
  if constexpr (kOut.activation == Activation::silu) return silu(v);
  if constexpr (kOut.activation == Activation::sigmoid) return sigmoid(v);
  if constexpr (kOut.activation == Activation::softplus) {
    const float value = softplus(v);
    if constexpr (kOut.clips)
      return fminf(fmaxf(value, __uint_as_float(kOut.lowest)), __uint_as_float(kOut.highest));
    return value;
  }
  return v;
}

// An output's activation, which is that of its column.
template <int kProduct, int kOutput = 0>
__device__ __forceinline__ float activated_column(float value, int column) {
  constexpr Product product = kNetwork.products[kProduct];
  if constexpr (kOutput + 1 == product.outputs) {
    return activated<kProduct, kOutput>(value);
  } else {
    constexpr int kEnd = first_row(kNetwork, product, kOutput + 1);
    return column < kEnd ? activated<kProduct, kOutput>(value)
                         : activated_column<kProduct, kOutput + 1>(value, column);
  }
}

// One output of the causal convolution, then silu. taps: oldest first; weights are `stride` floats apart.
template <int kCount>
__device__ __forceinline__ float convolve(const float (&taps)[kCount], const float* weights, int stride,
                                          float bias) {
  float sum = bias;
#pragma unroll
  for (int k = 0; k < kCount; ++k) sum = __fmaf_rn(weights[k * stride], taps[k], sum);
  return silu(sum);
}

// What one step does to one state: h' = decay h + input. dt_u: the input times the dt that scales it.
struct StateStep {
  float decay, input;
};
__device__ __forceinline__ StateStep state_step(float a, float b, float dt, float dt_u, bool decays) {
  const float decay = formulas::decay<formulas::Discretization::zoh, Math>(Real{__fmul_rn(dt, a)}).v;
  float input = __fmul_rn(dt_u, b);
  if (decays) input = __fmul_rn(decay, input);
  return {decay, input};
}
__device__ __forceinline__ float next_state(float h, StateStep step) {
  return formulas::scaled_advance<formulas::Discretization::zoh, device::ScaledMath>(h, step.decay,
                                                                                     step.input);
}

// Advances this lane's states of one channel by one step and returns the lane's contribution to <C, h>.
template <int kEach>
__device__ __forceinline__ float advance(float (&h)[kEach], const float (&a)[kEach], const float* b,
                                         const float* c, float dt, float dt_u, bool decays) {
  float sum = 0.0f;
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    h[n] = next_state(h[n], state_step(a[n], b[n], dt, dt_u, decays));
    sum = __fmaf_rn(c[n], h[n], sum);
  }
  return sum;
}

// y = (<C, h> + D u) silu(z); gate_value: silu(z)
__device__ __forceinline__ float gate(float read_out, float d, float u, float gate_value) {
  return __fmul_rn(__fmaf_rn(d, u, read_out), gate_value);
}

}  // namespace policy
}  // namespace exphil
