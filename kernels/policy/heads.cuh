// A recurrence over heads (common/heads.cuh) as the step and the kernels over many rows compute it, and the
// gates behind it: the same operations in the same order.
#pragma once

#include "kernels/common/heads.cuh"
#include "kernels/common/trapezoid.cuh"
#include "kernels/policy/math.cuh"

namespace exphil {
namespace policy {

template <int kHeads>
struct HeadRows {
  static constexpr Heads kOf = kNetwork.heads[kHeads];
  static constexpr int kKeys = keys_of(kNetwork, kOf), kRanks = kOf.ranks;
  static constexpr Lanes kSplit = Lanes(kKeys);
  static constexpr int kLanesOf = kSplit.lanes, kEach = kSplit.each, kStates = kSplit.size();
  static constexpr int kChannels = size_of(kOf.value), kValues = values_of(kOf.value);
  static constexpr int kOutputs = kOf.spreads() ? kRanks : 1;  // of a row

  // What a frame gives a lane of a row.
  struct Frame {
    float key[kRanks][kEach], query[kRanks][kEach];
    float rate, value, gate;
    // With the trapezoidal rule.
    float key_before[kRanks][kEach];
    float value_before, a, mix;
    float decays;  // with the delta rule: the sum of this lane's
  };

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
  // The sum of this lane's of as many values as a key has.
  template <class Read>
  static __device__ __forceinline__ float sum_of(const float* values, int lane, Read read) {
    float own[kEach], sum = 0.0f;
    load(values, lane, own, read);
#pragma unroll
    for (int n = 0; n < kEach; ++n) sum = __fadd_rn(sum, own[n]);
    return sum;
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
  // Those of all ranks, which are `stride` values apart.
  template <class Read>
  static __device__ __forceinline__ void load(const float* values, int stride, int lane,
                                              float (&to)[kRanks][kEach], Read read) {
#pragma unroll
    for (int r = 0; r < kRanks; ++r) load(values + r * stride, lane, to[r], read);
  }

  // Advances this lane's states of a row by one step; sums: the lane's contributions to <S', query>. weights:
  // of the row's channel. All lanes of a row call it together.
  static __device__ __forceinline__ void advance(float (&h)[kEach], const Frame& frame, const float* weights,
                                                 float (&sums)[kRanks]) {
    if constexpr (kOf.trapezoid()) {
      advance_trapezoid(h, frame, weights, sums);
    } else if constexpr (kOf.delta()) {
      sums[0] = advance_delta(h, frame);
    } else {
      const float rate = frame.rate;
      const float decay =
          formulas::decay<formulas::Discretization::zoh, Math>(Real{__fmul_rn(rate, *weights)}).v;
      const float input = formulas::head_input<formulas::HeadRule::linear>(Real{rate}, Real{frame.value},
                                                                           Real{decay}, Real{0.0f})
                              .v;
      sums[0] = add_input(h, frame, decay, input);
    }
  }

  // The output of a row, or of one rank of it, from the sums of its lanes. gates: read where there are any.
  static __device__ __forceinline__ float output(const float (&sums)[kRanks], float d, const Frame& frame,
                                                 const float* gates, const float* weights, int rank) {
    if constexpr (!kOf.ranked) {
      if constexpr (kOf.z == kNoVector) return __fmaf_rn(d, frame.value, sums[0]);
      return gate(sums[0], d, frame.value, *gates);
    } else if constexpr (kOf.spreads()) {
      return __fmaf_rn(d, __fmul_rn(weights[rank], frame.value), sums[rank]);
    } else {
      float joined = 0.0f;
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        const float y = __fmaf_rn(d, __fmul_rn(weights[r], frame.value), sums[r]);
        const float z = silu(__fmul_rn(weights[kRanks + r], *gates));
        joined = __fmaf_rn(weights[2 * kRanks + r], __fmul_rn(y, z), joined);
      }
      return joined;
    }
  }

 private:
  // S' = decay S + input key^T.
  static __device__ __forceinline__ float add_input(float (&h)[kEach], const Frame& frame, float decay,
                                                    float input) {
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      h[n] = next_state(h[n], {decay, __fmul_rn(input, frame.key[0][n])});
      sum = __fmaf_rn(frame.query[0][n], h[n], sum);
    }
    return sum;
  }

  static __device__ __forceinline__ float advance_delta(float (&h)[kEach], const Frame& frame) {
    const float decay = __fmul_rn(add_lanes<kLanesOf>(frame.decays), 1.0f / kKeys);
    float recalled = 0.0f;
#pragma unroll
    for (int n = 0; n < kEach; ++n) recalled = __fmaf_rn(frame.key[0][n], h[n], recalled);
    recalled = add_lanes<kLanesOf>(recalled);
    const float input = formulas::head_input<formulas::HeadRule::delta>(Real{frame.rate}, Real{frame.value},
                                                                        Real{decay}, Real{recalled})
                            .v;
    return add_input(h, frame, decay, input);
  }

  static __device__ __forceinline__ void advance_trapezoid(float (&h)[kEach], const Frame& frame,
                                                           const float* weights, float (&sums)[kRanks]) {
    const auto step = formulas::trapezoid_step<Math>(Real{frame.rate}, Real{frame.a}, Real{frame.mix},
                                                     Real{__uint_as_float(kOf.floor)});
    const float before = __fmul_rn(step.before.v, frame.value_before);
    const float now = __fmul_rn(step.now.v, frame.value);
    float input[kEach] = {};
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      const float of_before = kOf.ranked ? __fmul_rn(weights[r], before) : before;
      const float of_now = kOf.ranked ? __fmul_rn(weights[r], now) : now;
#pragma unroll
      for (int n = 0; n < kEach; ++n) {
        input[n] = __fmaf_rn(of_before, frame.key_before[r][n], input[n]);
        input[n] = __fmaf_rn(of_now, frame.key[r][n], input[n]);
      }
    }
#pragma unroll
    for (int n = 0; n < kEach; ++n) h[n] = next_state(h[n], {step.decay.v, input[n]});
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      sums[r] = 0.0f;
#pragma unroll
      for (int n = 0; n < kEach; ++n) sums[r] = __fmaf_rn(frame.query[r][n], h[n], sums[r]);
    }
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
  constexpr int kValues = values_of(kOf.ranks > 0 ? kOf.out : kOf.in);
  return kOf.at + kValues == values_of(kOf.out) ? size_of(kOf.out) - kOf.at : kValues;
}

// The same of ranks: value i of the output. in: of the first rank; factors: of each rank's norm; scales: of
// each value, those of the gate and of the sum.
template <int kGate>
__device__ __forceinline__ float gated_ranks(const float* in, const float* factors, const float* weight,
                                             const float* scales, const float* gates, int i) {
  constexpr Gate kOf = kNetwork.gates[kGate];
  constexpr int kOne = values_of(kOf.out);
  const float* const own = scales + i * 2 * kOf.ranks;
  float joined = 0.0f;
#pragma unroll
  for (int r = 0; r < kOf.ranks; ++r) {
    float y = in[r * kOne + i];
    if constexpr (kOf.parts > 0) y = __fmul_rn(__fmul_rn(y, factors[r]), weight[i]);
    joined = __fmaf_rn(own[kOf.ranks + r], __fmul_rn(y, silu(__fmul_rn(own[r], gates[i]))), joined);
  }
  return joined;
}

// A gate of ranks for one agent or row: part `part` of each rank, by a warp or, of several that share it, by
// number `sharer`.
template <int kGate>
__device__ __forceinline__ void gate_ranks(const float* in, const float* weight, const float* scales,
                                           const float* gates, float* out, int part, int sharer = 0,
                                           int sharers = 1) {
  constexpr Gate kOf = kNetwork.gates[kGate];
  constexpr int kOne = values_of(kOf.out), kParts = most(1, kOf.parts / kOf.ranks), kPart = kOne / kParts;
  float factors[kOf.ranks];
#pragma unroll
  for (int r = 0; r < kOf.ranks; ++r) {
    factors[r] = kOf.parts > 0 ? part_factor<kGate>(in, r * kParts + part) : 0.0f;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = part * kPart + sharer * 32 + lane; i < (part + 1) * kPart; i += 32 * sharers) {
    out[i] = gated_ranks<kGate>(in, factors, weight, scales, gates, i);
  }
}

// ---- keys of heads that are rotated ----

// The cosine and the sine of an angle.
__device__ __forceinline__ float2 turn_of(float angle) {
  Real sine, cosine;
  Math::sin_cos(Real{angle}, &sine, &cosine);
  return make_float2(cosine.v, sine.v);
}
__device__ __forceinline__ float next_angle(float angle, float rate, float dt) {
  return formulas::next_angle<Math>(Real{angle}, Real{rate}, Real{dt}).v;
}

// The factor of its norm for a rank and a group, whose values begin at `in`: by a warp.
template <int kRotation>
__device__ __forceinline__ float rotation_factor(const float* in) {
  constexpr Rotation kOf = kNetwork.rotations[kRotation];
  constexpr int kSize = size_of(kNetwork, kOf);
  return norm_factors<Norm::rms, kSize, kSize>(in, __uint_as_float(kOf.epsilon)).scale;
}
// Value i of a rank and a head. bias, turn: of the head, and of its rank.
template <int kRotation>
__device__ __forceinline__ float rotated(const float* in, float factor, const float* weight,
                                         const float* bias, const float* turn, int i) {
  constexpr Rotation kOf = kNetwork.rotations[kRotation];
  constexpr int kSize = size_of(kNetwork, kOf), kAngles = angles_of(kNetwork, kOf);
  constexpr int kApart = kOf.halves ? kSize / 2 : 1, kStep = kOf.halves ? 1 : 2;
  const auto given = [&](int k) __attribute__((always_inline)) {
    return __fmaf_rn(__fmul_rn(in[k], factor), weight[k], bias[k]);
  };
  const bool second = kOf.halves ? i >= kApart : i % 2 != 0;
  const int angle = kOf.halves ? (second ? i - kApart : i) : i / 2;
  if (angle >= kAngles) return given(i);
  const float x = given(angle * kStep), y = given(angle * kStep + kApart);
  const float cosine = turn[2 * angle], sine = turn[2 * angle + 1];
  return second ? __fadd_rn(__fmul_rn(x, sine), __fmul_rn(y, cosine))
                : __fsub_rn(__fmul_rn(x, cosine), __fmul_rn(y, sine));
}

}  // namespace policy
}  // namespace exphil
