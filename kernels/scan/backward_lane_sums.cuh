// The sums over states and over channels of several steps at once, by way of shared memory: each lane leaves
// what its steps give, and then adds up a few of the sums. Shuffles (scan/backward_sums.cuh) need no shared
// memory, but three to four times as many instructions. Both add in the same order, so they give the same
// bits. Included by scan/backward.cu alone.
#pragma once

#include "kernels/scan/backward_sums.cuh"

namespace exphil {
namespace scan {

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

#if SUM_STEPS
constexpr int kSumSteps = SUM_STEPS;
static_assert(kSteps % kSumSteps == 0, "the steps of a piece are added up together");

// load(j) + load(j + 1) + ... in pairs, as neighbours are added by reduce_lanes().
template <int Count, int Wide, class Load>
__device__ __forceinline__ void sum_pairs(int first, const Load& load, float (&sum)[Wide]) {
  if constexpr (Count == 1) {
    load(first, sum);
  } else {
    float other[Wide];
    sum_pairs<Count / 2>(first, load, sum);
    sum_pairs<Count / 2>(first + Count / 2, load, other);
#pragma unroll
    for (int i = 0; i < Wide; ++i) sum[i] = __fadd_rn(sum[i], other[i]);
  }
}

// Sums over groups of `Group` lanes that are Apart from each other, where each lane has left Values floats
// with store_of_lane() in each of kSumSteps steps. A lane adds up kShare of these sums, kWide at a time.
template <int Values, int Group, int Apart>
struct LaneSums {
  static constexpr int kQuads = Values / 4, kGroups = 32 / Group;
  static constexpr int kShare = kSumSteps * Values / Group, kWide = kShare < 4 ? kShare : 4;
  static_assert(Values % 4 == 0 && kShare >= 2, "lanes read two or four floats");
  float sum[kShare / kWide][kWide];

  // What a lane reads at a time: from `piece` of a quad on, in a row of {steps, quads}, of the lanes of a
  // group. Lanes that share a quad have the same `reader`.
  struct At {
    int reader, piece, group, row;
  };
  static __device__ __forceinline__ At find(int u) {
    const int number = u * 32 + threadIdx.x, reader = number / (4 / kWide);
    return {reader, number % (4 / kWide) * kWide, reader % kGroups, reader / kGroups};
  }

  // Eight neighbouring readers read at once: those whose groups begin in the same banks begin with different
  // lanes of their groups. To add a pair in the other order changes no bits.
  __device__ __forceinline__ void load(const float* from) {
    constexpr int kDifferent = Apart > 1 ? (Apart < 8 ? Apart : 8) : Group < 8 ? 8 / Group : 1;
    constexpr int kTurns = Group < 8 / kDifferent ? Group : 8 / kDifferent;
#pragma unroll
    for (int u = 0; u < kShare / kWide; ++u) {
      const At at = find(u);
      const int first = at.group * (Apart > 1 ? 1 : Group), turn = at.reader / kDifferent % kTurns;
      const float* lanes[kTurns];
#pragma unroll
      for (int t = 0; t < kTurns; ++t) {
        lanes[t] = from + (at.row * 32 + first + (t ^ turn) * Apart) * 4 + at.piece;
      }
      sum_pairs<Group>(
          0,
          [&](int j, float(&to)[kWide]) {
            device::load_floats(lanes[j % kTurns] + (j - j % kTurns) * Apart * 4, to);
          },
          sum[u]);
    }
  }
  // store(step, group, number of the first value, values)
  template <class Store>
  __device__ __forceinline__ void store(const Store& store) const {
#pragma unroll
    for (int u = 0; u < kShare / kWide; ++u) {
      const At at = find(u);
      store(at.row / kQuads, at.group, at.row % kQuads * 4 + at.piece, sum[u]);
    }
  }
};

__device__ __forceinline__ float* lane_sums_of(const Place& s, const Shared& shared) {
  return shared.lane_sums + s.warp * kLayout.lane_sums_of_warp();
}
// What a lane's step gives, number `step` of kSumSteps.
__device__ __forceinline__ void leave_sums(const Place& s, const Shared& shared, int step,
                                           const StepSums& sums) {
  float* to = lane_sums_of(s, shared);
  store_of_lane(to + step * kRowValues * 32, sums.over_channels);
  store_of_lane(to + (kSumSteps * kRowValues + step * kStateValues) * 32, sums.over_states);
}

// Adds up the steps of the segment from `first` on: over the lanes of a column, into the streams; over the
// columns of the warp, into `rows`, {steps, 2, kRow}.
__device__ __forceinline__ void add_up_steps(const Place& s, const Shared& shared, int first, float* rows) {
  const float* from = lane_sums_of(s, shared);
  __syncwarp();  // every lane has left its sums, and has read the streams of these steps
  LaneSums<kRowValues, kColumns, kLanes> over_channels;
  LaneSums<kStateValues, kLanes, 1> over_states;
  over_channels.load(from);
  over_states.load(from + kSumSteps * kRowValues * 32);
  over_channels.store([&](int step, int part, int value, const auto& sum) {
    constexpr int kWide = LaneSums<kRowValues, kColumns, kLanes>::kWide;
    constexpr int kTogether = kWide < kLaneRow ? kWide : kLaneRow;
#pragma unroll
    for (int i = 0; i < kWide; i += kTogether) {
      float run[kTogether];
#pragma unroll
      for (int f = 0; f < kTogether; ++f) run[f] = sum[i + f];
      const int kind = (value + i) / kLaneRow, state = (value + i) % kLaneRow;
      device::store_floats(rows + (step * 2 + kind) * kRow + part * kLaneRow + state, run);
    }
  });
  over_states.store([&](int step, int column, int value, const auto& sum) {
    constexpr int kWide = LaneSums<kStateValues, kLanes, 1>::kWide;
    constexpr int kTogether = kWide < kChannels ? kWide : kChannels;
    const int place = (first + step) * kTileChannels + (s.warp * kColumns + column) * kChannels;
#pragma unroll
    for (int i = 0; i < kWide; i += kTogether) {
      float run[kTogether];
#pragma unroll
      for (int f = 0; f < kTogether; ++f) run[f] = sum[i + f];
      const int kind = (value + i) / kChannels, channel = (value + i) % kChannels;
      float* stream = kind == 0 ? shared.v : kind == 1 ? shared.dy : shared.y;
      if (kind < 3) device::store_floats(stream + place + channel, run);
    }
  });
  __syncwarp();  // the sums have been read
}
#endif

}  // namespace scan
}  // namespace exphil
