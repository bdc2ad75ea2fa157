// The scalar formulas of a policy step for its kernels: kernels/common/formulas.cuh over device::Real, so
// that the same inputs give the same bits wherever a formula is inlined.
#pragma once

#include "kernels/common/device_math.cuh"
#include "kernels/common/heads.cuh"
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
// An output's value as its readers get it, from the sum of its row with the bias.
template <int kProduct, int kOutput>
__device__ __forceinline__ float activated(float v) {
  constexpr Output kOut = kNetwork.products[kProduct].out[kOutput];
  if constexpr (kOut.activation == Activation::relu) return device::rectified(v);
  if constexpr (kOut.activation == Activation::silu) return silu(v);
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

// ---- a recurrence over heads: formulas of common/heads.cuh, the state's step as of a scan ----

template <int kHeads>
struct HeadRows {
  static constexpr Heads kOf = kNetwork.heads[kHeads];
  static constexpr int kKeys = keys_of(kNetwork, kOf);
  static constexpr Lanes kSplit = Lanes(kKeys);
  static constexpr int kLanesOf = kSplit.lanes, kEach = kSplit.each, kStates = kSplit.size();
  static constexpr int kChannels = size_of(kOf.value);

  // The head of a row, and where its group's keys and queries begin.
  static __device__ __forceinline__ int head(int channel) { return head_of(kNetwork, kOf, channel); }
  static __device__ __forceinline__ int first_key(int channel) {
    if constexpr (kOf.groups == 1) return 0;
    return group_of(kOf, head(channel)) * kKeys;
  }
  // This lane's values of a key or a query; zeros behind the last one. read: of a float or of a float4.
  template <class Read>
  static __device__ __forceinline__ void load(const float* values, int lane, float (&to)[kEach], Read read) {
    const float* const from = values + lane * kEach;
    if constexpr (kKeys == kStates) {
#pragma unroll
      for (int n = 0; n < kEach; n += 4) {
        const float4 four = read(reinterpret_cast<const float4*>(from + n));
        to[n] = four.x, to[n + 1] = four.y, to[n + 2] = four.z, to[n + 3] = four.w;
      }
    } else {
#pragma unroll
      for (int n = 0; n < kEach; ++n) to[n] = lane * kEach + n < kKeys ? read(from + n) : 0.0f;
    }
  }
  // The states of a lane; zeros where there are none.
  static __device__ __forceinline__ void load_state(const float* from, bool exists, float (&h)[kEach]) {
#pragma unroll
    for (int n = 0; n < kEach; n += 4) {
      const float4 four = exists ? *reinterpret_cast<const float4*>(from + n) : make_float4(0, 0, 0, 0);
      h[n] = four.x, h[n + 1] = four.y, h[n + 2] = four.z, h[n + 3] = four.w;
    }
  }
  static __device__ __forceinline__ void store_state(float* to, const float (&h)[kEach]) {
#pragma unroll
    for (int n = 0; n < kEach; n += 4) {
      *reinterpret_cast<float4*>(to + n) = make_float4(h[n], h[n + 1], h[n + 2], h[n + 3]);
    }
  }
  // Advances this lane's states of a row by one step and returns the lane's contribution to <S', query>.
  static __device__ __forceinline__ float advance(float (&h)[kEach], const float (&key)[kEach],
                                                  const float (&query)[kEach], float a, float rate,
                                                  float value) {
    const float decay = formulas::decay<formulas::Discretization::zoh, Math>(Real{__fmul_rn(rate, a)}).v;
    const float input =
        formulas::head_input<formulas::HeadRule::linear>(Real{rate}, Real{value}, Real{decay}, Real{0.0f}).v;
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      h[n] = next_state(h[n], {decay, __fmul_rn(input, key[n])});
      sum = __fmaf_rn(query[n], h[n], sum);
    }
    return sum;
  }
  // The output of a row from the sum of its lanes. gates: silu(z), read where there is one.
  static __device__ __forceinline__ float output(float sum, float d, float value, const float* gates) {
    if constexpr (kOf.z == kNoVector) return __fmaf_rn(d, value, sum);
    return gate(sum, d, value, *gates);
  }
};

// The factor by which a gate's phase normalises a part of its input, by a warp.
template <int kGate>
__device__ __forceinline__ float part_factor(const float* in, int part) {
  constexpr Gate kOf = kNetwork.gates[kGate];
  constexpr int kValues = values_of(kOf.in) / most(kOf.parts, 1);
  return norm_factors<Norm::rms, kValues, kValues>(in + part * kValues, __uint_as_float(kOf.epsilon)).scale;
}
// One of its values.
template <int kGate>
__device__ __forceinline__ float gated(float value, float factor, const float* weight, const float* gates,
                                       int i) {
  constexpr Gate kOf = kNetwork.gates[kGate];
  if constexpr (kOf.parts > 0) value = __fmul_rn(__fmul_rn(value, factor), weight[i]);
  if constexpr (kOf.gate != kNoVector) value = __fmul_rn(value, gates[i]);
  return value;
}
// Values of its output that it writes, with the padding behind the last one.
template <int kGate>
constexpr int written_by_gate() {
  constexpr Gate kOf = kNetwork.gates[kGate];
  constexpr int kValues = values_of(kOf.in);
  return kOf.at + kValues == values_of(kOf.out) ? size_of(kOf.out) - kOf.at : kValues;
}

}  // namespace policy
}  // namespace exphil
