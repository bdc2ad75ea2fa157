// What a lane of the gradient's kernels for a diagonal A holds and does: its states of A and of constant b
// and c, the rows and streams of a step, and the state's own step. Included by backward.cu and
// backward_local.cu.
#pragma once

#include "kernels/common/launches.cuh"
#include "kernels/scan/backward_rows.cuh"
#include "kernels/scan/backward_states.cuh"
#include "kernels/scan/backward_streams.cuh"

namespace exphil {
namespace scan {

// What a lane keeps of its channels.
struct Lane {
  Number a[kOwn];
  Number b[B_CONSTANT ? kOwn : 1], c[C_CONSTANT ? kOwn : 1];
};
__device__ __forceinline__ Lane load_lane(const Arguments& p, const Place& s) {
  Lane lane;
  load_states(p, s, p.a, 0, lane.a);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) lane.a[i] = Rule::constant(lane.a[i]);
#if B_CONSTANT
  load_constant<kProjectionElement>(s, p.b, lane.b);
#endif
#if C_CONSTANT
  load_constant<kProjectionElement>(s, p.c, lane.c);
#endif
  return lane;
}

// b or c of one step.
struct Projection {
  Number value[kPerLane];
};
__device__ __forceinline__ Projection load_row(const Place& s, const float* rows, int step) {
  Projection row;
  float flat[kLaneRow];
  device::load_floats(rows + step * kRow + s.part * kLaneRow, flat);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) row.value[i] = Rule::load(flat + i * kFloats);
  return row;
}
__device__ __forceinline__ Projection load_b(const Place& s, const Shared& shared, int step) {
  return B_CONSTANT ? Projection{} : load_row(s, shared.b, step);
}
__device__ __forceinline__ Projection load_c(const Place& s, const Shared& shared, int step) {
  return C_CONSTANT ? Projection{} : load_row(s, shared.c, step);
}
__device__ __forceinline__ Number b_of(const Lane& lane, const Projection& row, int i) {
  return B_CONSTANT ? lane.b[B_CONSTANT ? i : 0] : row.value[i % kPerLane];
}
__device__ __forceinline__ Number c_of(const Lane& lane, const Projection& row, int i) {
  return C_CONSTANT ? lane.c[C_CONSTANT ? i : 0] : row.value[i % kPerLane];
}

// One stream of one step, of the lane's channels.
struct Channels {
  float value[kChannels];
  __device__ __forceinline__ Real of(int i) const { return {value[i / kPerLane]}; }
};
__device__ __forceinline__ Channels load_channels(const Place& s, const float* stream, int step) {
  Channels out;
  device::load_floats(stream + step * kTileChannels + s.local(), out.value);
  return out;
}

struct Step {
  Number abar[kOwn], gain[Rule::kHasGain ? kOwn : 1];
};

// h after a step.
__device__ __forceinline__ void advance(const Place& s, const Shared& shared, const Lane& lane, int step,
                                        Step* with, Number (&h)[kOwn]) {
  const Channels dt = load_channels(s, shared.dt, step), v = load_channels(s, shared.v, step);
  const Projection b = load_b(s, shared, step);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    Number gain;
    Rule::discretize(lane.a[i], dt.of(i), &with->abar[i], &gain);
    Number input = b_of(lane, b, i) * v.of(i);
    if constexpr (Rule::kHasGain) {
      with->gain[i] = gain;
      input = gain * input;
    }
    h[i] = Rule::multiply_add(with->abar[i], h[i], input);
  }
}

// A lane's floats in shared memory, {Count / kRun, 32 lanes, kRun}: a warp's accesses are whole rows of it.
template <int Count>
constexpr int kRun = Count % 4 == 0 ? 4 : 2 - Count % 2;
template <int Count>
__device__ __forceinline__ void store_of_lane(float* to, const float (&from)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; i += kRun<Count>) {
    float run[kRun<Count>];
#pragma unroll
    for (int f = 0; f < kRun<Count>; ++f) run[f] = from[i + f];
    device::store_floats(to + i * 32 + threadIdx.x * kRun<Count>, run);
  }
}
template <int Count>
__device__ __forceinline__ void load_of_lane(const float* from, float (&to)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; i += kRun<Count>) {
    float run[kRun<Count>];
    device::load_floats(from + i * 32 + threadIdx.x * kRun<Count>, run);
#pragma unroll
    for (int f = 0; f < kRun<Count>; ++f) to[i + f] = run[f];
  }
}

// The row of checkpoints, adjoints, decays and of the sums over a segment.
__device__ __forceinline__ long long segment_row(const BackwardArguments& all, const Place& s) {
  return s.batch * all.segments + s.segment;
}

}  // namespace scan
}  // namespace exphil
