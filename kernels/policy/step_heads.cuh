// A recurrence over heads and the gate behind it as members of Step. The rows of the heads' matrices are
// divided among the blocks, and the lanes of a row are neighbours, as those of a scan's channel.
#pragma once

#include "kernels/policy/step.cuh"

namespace exphil {
namespace policy {

template <int kIndex>
__device__ __forceinline__ void Step::load_states_of(HeldStates<Kind::heads, kIndex>& to, int layer) {
  using Items = HeadItems<kIndex>;
  if constexpr (Items::kHeld) {
#pragma unroll
    for (int k = 0; k < Items::kPer; ++k) {
      const int item = thread() + k * THREADS;
      if (item >= Items::kItems) continue;
      const int c = item / Items::kLanesOf % Items::kOwn, lane = item % Items::kLanesOf;
      const float* const state = from_place(item / (Items::kOwn * Items::kLanesOf));
      Items::load_state(state + head_state_at<Items>(layer, c, lane), has_state<Items::kOf.value>(state, c),
                        to.values[k]);
    }
  }
}

// What a frame gives a lane of the row of this block's channel c.
template <int kIndex>
__device__ __forceinline__ typename HeadRows<kIndex>::Frame Step::head_frame(int agent, int c,
                                                                             int lane) const {
  using Items = HeadItems<kIndex>;
  constexpr Heads kOf = Items::kOf;
  const auto read = [](const auto* place) __attribute__((always_inline)) {
    return *place;
  };
  const int channel = rank_ * Items::kOwn + c, head = Items::head(channel);
  typename HeadRows<kIndex>::Frame frame;
  int first = 0;  // of the head's keys
  if constexpr (kOf.trapezoid()) {
    first = (head - block_first_head()) * Items::kKeys;
    Items::load(act_.vector<kOf.key_before>()[agent] + first, kBlockHeads * Items::kKeys, lane,
                frame.key_before, read);
    frame.value_before = act_.vector<kOf.value_before>()[agent][c];
    frame.a = act_.vector<kOf.a>()[agent][head], frame.mix = act_.vector<kOf.mix>()[agent][head];
  } else {
    first = Items::first_key(channel);
  }
  constexpr int kStride = kOf.trapezoid() ? kBlockHeads * Items::kKeys : 0;
  Items::load(act_.vector<kOf.key>()[agent] + first, kStride, lane, frame.key, read);
  Items::load(act_.vector<kOf.query>()[agent] + first, kStride, lane, frame.query, read);
  frame.value = act_.vector<kOf.value>()[agent][c];
  if constexpr (kOf.delta()) {
    frame.rate = act_.vector<kOf.rate>()[agent][c];
    frame.decays = Items::sum_of(act_.vector<kOf.decays>()[agent] + first, lane, read);
  } else {
    frame.rate = act_.vector<kOf.rate>()[agent][head];
  }
  return frame;
}

// The state update of this block's rows.
template <List kList, int kAt>
__device__ __forceinline__ void Step::heads(Run& run) {
  static_assert(kList == List::layer, "states are a layer's");
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using Items = HeadItems<kIndex>;
  constexpr Heads kOf = Items::kOf;
  constexpr PhaseWeights kWeights = weights_of<kList, kAt>();
  constexpr int kOwn = Items::kOwn, kLanesOf = Items::kLanesOf, kEach = Items::kEach;
  const auto& states = static_cast<HeldLayer<kAt>&>(held_states_).states.values;
  // States that no thread holds are loaded for so many rows at once.
  constexpr int kTogether = Items::kHeld ? Items::kPer : least(Items::kPer, 4);
#pragma unroll kTogether
  for (int k = 0; k < Items::kPer; ++k) {
    const int item = thread() + k * THREADS;
    if (item >= Items::kItems) continue;
    const int agent = item / (kOwn * kLanesOf), c = item / kLanesOf % kOwn, lane = item % kLanesOf;
    const int at = head_state_at<Items>(run.layer, c, lane);
    float h[kEach];
    if constexpr (Items::kHeld) {
#pragma unroll
      for (int n = 0; n < kEach; ++n) h[n] = states[k][n];
    } else {
      const float* const from = from_place(agent);
      Items::load_state(from + at, has_state<kOf.value>(from, c), h);
    }
    const auto frame = head_frame<kIndex>(agent, c, lane);
    const float* const weights = kWeights.channels.in(run.w) + c * kOf.weights();
    float sums[Items::kRanks];
    Items::advance(h, frame, weights, sums);
#pragma unroll
    for (int r = 0; r < Items::kRanks; ++r) sums[r] = add_lanes<kLanesOf>(sums[r]);
    const float* gates = nullptr;
    if constexpr (kOf.z != kNoVector) gates = &act_.vector<kOf.z>()[agent][c];
    static_assert(!kPlan.has_mean[kOf.out], "the lanes of a channel, not channels, are neighbours");
    const float d = kWeights.vector.in(run.w)[c];
    if constexpr (kOf.spreads()) {
      const int channel = rank_ * kOwn + c;
#pragma unroll
      for (int r = 0; r < Items::kRanks; ++r) {
        if (channel >= Items::kValues) continue;
        board_.push(&act_.vector<kOf.out>()[agent][r * Items::kValues + channel],
                    Items::output(sums, d, frame, gates, weights, r), lane, kLanesOf);
      }
    } else {
      keep<kOf.out>(agent, c, Items::output(sums, d, frame, gates, weights, 0), lane, kLanesOf);
    }
    float* const to = to_place(agent);
    if (has_state<kOf.value>(to, c)) Items::store_state(to + at, h);
  }
  if constexpr (kOf.spreads()) {
    board_.exchange(AGENTS * Items::kRanks * Items::kValues);
    copy_pushed<kOf.out>();
  } else {
    kept<kOf.out>();
  }
}

// Each block computes all of it: the warps have parts of the vector, and share one where there are few.
template <List kList, int kAt>
__device__ __forceinline__ void Step::gate_of_board(Run& run) {
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  constexpr Gate kOf = kNetwork.gates[kIndex];
  constexpr PhaseWeights kWeights = weights_of<kList, kAt>();
  constexpr int kValues = values_of(kOf.ranks > 0 ? kOf.out : kOf.in);
  constexpr int kParts = most(kOf.parts / most(kOf.ranks, 1), 1), kPart = kValues / kParts;
  constexpr int kWarps = THREADS / 32, kAll = AGENTS * kParts, kSharers = most(1, kWarps / kAll);
  const int lane = thread() % 32, warp = thread() / 32;
  for (int i = warp % (kWarps / kSharers); warp < kWarps / kSharers * kSharers && i < kAll;
       i += kWarps / kSharers) {
    const int agent = i / kParts, part = i % kParts;
    const float* const in = act_.vector<kOf.in>()[agent];
    float* const out = act_.vector<kOf.out>()[agent] + kOf.at;
    const float* gates = nullptr;
    if constexpr (kOf.gate != kNoVector) gates = act_.vector<kOf.gate>()[agent];
    if constexpr (kOf.ranks > 0) {
      gate_ranks<kIndex>(in, kWeights.vector.in(run.w), kWeights.channels.in(run.w), gates, out, part,
                         warp / (kWarps / kSharers), kSharers);
      continue;
    }
    float factor = 0.0f;
    if constexpr (kOf.parts > 0) factor = part_factor<kIndex>(in, part);
    for (int v = warp / (kWarps / kSharers) * 32 + lane; v < kPart; v += 32 * kSharers) {
      const int at = part * kPart + v;
      out[at] = gated<kIndex>(in[at], factor, kWeights.vector.in(run.w), gates, at);
    }
  }
  constexpr int kRest = written_by_gate<kIndex>() - kValues;
  for (int i = thread(); i < AGENTS * kRest; i += THREADS) {
    act_.vector<kOf.out>()[i / most(kRest, 1)][kOf.at + kValues + i % most(kRest, 1)] = 0.0f;
  }
  __syncthreads();
}

}  // namespace policy
}  // namespace exphil
