// The keys of heads with the trapezoidal rule as members of Step: cumulative angles, rotations by them, and
// what was there in the frame before. A block computes those of the heads that it has channels of; of a head
// that several blocks have, the first one keeps the state.
#pragma once

#include "kernels/policy/step.cuh"

namespace exphil {
namespace policy {

__device__ __forceinline__ bool Step::owns_head(int i) const {
  const int head = block_first_head() + i, first = head * kHeadChannels;
  return head < kHeads && first >= rank_ * own_of(kHeadsOf) && first < (rank_ + 1) * own_of(kHeadsOf);
}

// Where an angle of this block is in an agent's state.
template <int kIndex>
__device__ __forceinline__ int Step::angle_at(int layer, int item) const {
  using Items = AngleItems<kIndex>;
  return layer * kNetwork.layer_floats + Items::kOf.state_at +
         block_head(item / Items::kAngles % kBlockHeads) * Items::kAngles + item % Items::kAngles;
}

template <int kIndex>
__device__ __forceinline__ void Step::load_states_of(HeldStates<Kind::angle, kIndex>& to, int layer) {
  using Items = AngleItems<kIndex>;
  if constexpr (Items::kHeld) {
#pragma unroll
    for (int k = 0; k < Items::kPer; ++k) {
      const int item = thread() + k * THREADS;
      if (item >= Items::kItems) continue;
      const float* const state = from_place(item / (kBlockHeads * Items::kAngles));
      to.values[k] = state != nullptr ? state[angle_at<kIndex>(layer, item)] : 0.0f;
    }
  }
}

template <List kList, int kAt>
__device__ __forceinline__ void Step::angle(Run& run) {
  static_assert(kList == List::layer, "states are a layer's");
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using Items = AngleItems<kIndex>;
  constexpr Angle kOf = Items::kOf;
  const auto& states = static_cast<HeldLayer<kAt>&>(held_states_).states.values;
#pragma unroll
  for (int k = 0; k < Items::kPer; ++k) {
    const int item = thread() + k * THREADS;
    if (item >= Items::kItems) continue;
    const int agent = item / (kBlockHeads * Items::kAngles), j = item % Items::kAngles;
    const int i = item / Items::kAngles % kBlockHeads, at = angle_at<kIndex>(run.layer, item);
    const float* const from = Items::kHeld ? nullptr : from_place(agent);
    float angle = Items::kHeld ? states[Items::kHeld ? k : 0] : from != nullptr ? from[at] : 0.0f;
    angle = next_angle(angle, act_.vector<kOf.rate>()[agent][j], act_.vector<kOf.dt>()[agent][block_head(i)]);
    const float2 turn = turn_of(angle);
    float* const to = act_.vector<kOf.out>()[agent] + 2 * (i * Items::kAngles + j);
    to[0] = turn.x, to[1] = turn.y;
    float* const state = to_place(agent);
    if (state != nullptr && owns_head(i)) state[at] = angle;
  }
  __syncthreads();
}

// A warp for each rank and head. The rotations of a layer take different warps, as far as there are any; who
// reads what they write synchronises the block.
template <List kList, int kAt>
__device__ __forceinline__ void Step::rotation(Run& run) {
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  constexpr Rotation kOf = kNetwork.rotations[kIndex];
  constexpr PhaseWeights kWeights = weights_of<kList, kAt>();
  constexpr int kSize = size_of(kNetwork, kOf), kTurn = 2 * angles_of(kNetwork, kOf);
  constexpr int kTasks = AGENTS * kOf.ranks * kBlockHeads, kWarps = THREADS / 32;
  const int warp = (thread() / 32 + kIndex * (kWarps - kTasks % kWarps)) % kWarps, lane = thread() % 32;
  for (int task = warp; task < kTasks; task += kWarps) {
    const int agent = task / (kOf.ranks * kBlockHeads), row = task % (kOf.ranks * kBlockHeads);
    const int rank = row / kBlockHeads, i = row % kBlockHeads;
    const int group = block_head(i) / (kOf.heads / kOf.groups);
    const float* const in = act_.vector<kOf.in>()[agent] + (rank * kOf.groups + group) * kSize;
    const float factor = rotation_factor<kIndex>(in);
    const float* const bias = kWeights.channels.in(run.w) + (i * kOf.ranks + rank) * kSize;
    const float* const turn = act_.vector<kOf.turn>()[agent] + i * kTurn;
    float* const out = act_.vector<kOf.out>()[agent] + row * kSize;
    for (int n = lane; n < kSize; n += 32) {
      out[n] = rotated<kIndex>(in, factor, kWeights.vector.in(run.w), bias, turn, n);
    }
  }
}

// Where a delayed value of this block is in an agent's state.
template <int kIndex>
__device__ __forceinline__ int Step::delay_at(int layer, int item) const {
  using Items = DelayItems<kIndex>;
  const int first = layer * kNetwork.layer_floats + Items::kOf.state_at, value = item % Items::kOwn;
  if constexpr (Items::kOfHeads) {
    const int row = value / Items::kKeys, head = block_head(row % kBlockHeads);
    return first + (row / kBlockHeads * kHeads + head) * Items::kKeys + value % Items::kKeys;
  }
  return first + rank_ * Items::kOwn + value;
}
template <int kIndex>
__device__ __forceinline__ bool Step::owns_delayed(int item) const {
  using Items = DelayItems<kIndex>;
  const int value = item % Items::kOwn;
  if constexpr (Items::kOfHeads) return owns_head(value / Items::kKeys % kBlockHeads);
  return has_channel<Items::kOf.in>(rank_ * Items::kOwn + value);
}

template <int kIndex>
__device__ __forceinline__ void Step::load_states_of(HeldStates<Kind::delay, kIndex>& to, int layer) {
  using Items = DelayItems<kIndex>;
  if constexpr (Items::kHeld) {
#pragma unroll
    for (int k = 0; k < Items::kPer; ++k) {
      const int item = thread() + k * THREADS;
      if (item >= Items::kItems) continue;
      const float* const state = from_place(item / Items::kOwn);
      const bool exists = state != nullptr && (Items::kOfHeads || owns_delayed<kIndex>(item));
      to.values[k] = exists ? state[delay_at<kIndex>(layer, item)] : 0.0f;
    }
  }
}

template <List kList, int kAt>
__device__ __forceinline__ void Step::delay(Run& run) {
  static_assert(kList == List::layer, "states are a layer's");
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using Items = DelayItems<kIndex>;
  constexpr Delay kOf = Items::kOf;
  const auto& states = static_cast<HeldLayer<kAt>&>(held_states_).states.values;
  const float* const in = act_.vector<kOf.in>()[0];
  float* const out = act_.vector<kOf.out>()[0];
#pragma unroll
  for (int k = 0; k < Items::kPer; ++k) {
    const int item = thread() + k * THREADS;
    if (item >= Items::kItems) continue;
    float value = states[Items::kHeld ? k : 0];
    if constexpr (!Items::kHeld) {
      const float* const from = from_place(item / Items::kOwn);
      const bool exists = from != nullptr && (Items::kOfHeads || owns_delayed<kIndex>(item));
      value = exists ? from[delay_at<kIndex>(run.layer, item)] : 0.0f;
    }
    out[item] = value;
  }
  __syncthreads();  // what rotations have written is there too
#pragma unroll
  for (int k = 0; k < Items::kPer; ++k) {
    const int item = thread() + k * THREADS;
    if (item >= Items::kItems) continue;
    float* const state = to_place(item / Items::kOwn);
    if (state == nullptr || !owns_delayed<kIndex>(item)) continue;
    state[delay_at<kIndex>(run.layer, item)] = in[item];
  }
}

}  // namespace policy
}  // namespace exphil
