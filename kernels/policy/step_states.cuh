// What policy_step reads ahead, as members of Step: the frame, and what a thread holds (policy/held.cuh).
#pragma once

#include "kernels/policy/step.cuh"

namespace exphil {
namespace policy {

// Every thread has the place of one agent; of several they are in shared memory.
__device__ __forceinline__ void Step::load_places(int first) {
  const int agent = AGENTS == 1 ? first : first + thread();
  if (AGENTS == 1 || thread() < AGENTS) {
    place_ = {nullptr, nullptr};
    if (agent < args_.count) place_ = args_.states == nullptr ? args_.state : args_.states[agent];
  }
  if constexpr (AGENTS > 1) {
    if (thread() < AGENTS) act_.from(thread()) = place_.from, act_.to(thread()) = place_.to;
    __syncthreads();
  }
}

// A value of the group's frames.
__device__ __forceinline__ float Step::frame_value(int first, const float* parameters, int i) const {
  const int agent = first + i / kFrameSize, k = i % kFrameSize;
  if (i >= AGENTS * kFrameSize || agent >= args_.count) return 0.0f;
  if (args_.obs != nullptr) return __ldcs(args_.obs + static_cast<long long>(agent) * kFrameSize + k);
  return agent == 0 && k < kFrameValues ? parameters[k] : 0.0f;
}

// All loads are under way before the first of them is awaited, those of many weights last, because they hold
// up what comes behind them. What needs the states alone is computed before the frames, the arguments of the
// launch, have come.
__device__ __forceinline__ void Step::load_group(int first, bool first_group, const float* inline_obs) {
  constexpr int kPer = divide_up(AGENTS * kFrameSize, THREADS);
  load_places(first);
  load_recalled(0), load_states(0);
  // Reads through an address that the compiler cannot trace to the parameter bank: indexed reads of that
  // bank are one word at a time for the entire warp.
  const float* const parameters = launder(inline_obs);
  float values[kPer];
#pragma unroll
  for (int i = 0; i < kPer; ++i) values[i] = frame_value(first, parameters, thread() + i * THREADS);
  if (first_group) hold_first(0);
  early_products(0, kEarlyLayers);
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const int at = thread() + i * THREADS;
    if (at < AGENTS * kFrameSize) (&act_.vector<kNetwork.frame>()[0][0])[at] = values[i];
  }
  __syncthreads();
}

// The weights of a layer's first product.
__device__ __forceinline__ void Step::hold_first(int layer) {
  if constexpr (kHoldFirst) {
    const auto* w = reinterpret_cast<const Group*>(first_matrix(layer));
#pragma unroll
    for (int i = 0; i < kFirstPer; ++i) {
      const int task = thread() + i * kFirstThreads;
#pragma unroll
      for (int j = 0; j < kSegment / 4; ++j) {
        if (task < FirstProduct::kTasks && thread() < kFirstThreads)
          held_[i][j] = __ldg(w + j * FirstProduct::kTasks + task);
      }
    }
  }
}

// Prefetches the layer's recurrent state into registers.
__device__ __forceinline__ void Step::load_states(int layer) {
  for_each_number<0, kNetwork.layer.count>([&](auto at) __attribute__((always_inline)) {
    constexpr int kAt = decltype(at)::value;
    load_states_of(static_cast<HeldLayer<kAt>&>(held_states_).states, layer);
  });
}

template <Kind kKind, int kIndex>
__device__ __forceinline__ void Step::load_states_of(HeldStates<kKind, kIndex>&, int) {}

template <int kIndex>
__device__ __forceinline__ void Step::load_states_of(HeldStates<Kind::convolution, kIndex>& to, int layer) {
  using Items = ConvolutionItems<kIndex>;
  if constexpr (Items::kHeld && Items::kHistory > 0) {
#pragma unroll
    for (int k = 0; k < Items::kPer; ++k) {
      const int item = thread() + k * THREADS, c = item % Items::kRows - Items::kFirst;
      if (item >= Items::kItems || c < 0 || c >= Items::kOwn) continue;
      const float* state = from_place(item / Items::kRows);
      const int at = state_at<Items::kOf.in, 1>(layer, Items::kOf.state_at, c);
      const bool exists = has_state<Items::kOf.in>(state, c);
#pragma unroll
      for (int t = 0; t < Items::kHistory; ++t) {
        to.values[k][t] = exists ? state[at + t * size_of(Items::kOf.in)] : 0.0f;
      }
    }
  }
}

template <int kIndex>
__device__ __forceinline__ void Step::load_states_of(HeldStates<Kind::scan, kIndex>& to, int layer) {
  using Items = ScanItems<kIndex>;
  if constexpr (Items::kHeld) {
#pragma unroll
    for (int k = 0; k < Items::kPer; ++k) {
      const int item = thread() + k * THREADS;
      if (item >= Items::kItems) continue;
      const int c = item / Items::kLanesOf % Items::kOwn;
      const float* state = from_place(item / (Items::kOwn * Items::kLanesOf));
      const int at = scan_at<Items>(layer, c, item % Items::kLanesOf);
      const bool exists = has_state<Items::kOf.x>(state, c);
#pragma unroll
      for (int n = 0; n < Items::kEach; n += 4) {
        const float4 value =
            exists ? *reinterpret_cast<const float4*>(state + at + n) : make_float4(0, 0, 0, 0);
        to.values[k][n] = value.x, to.values[k][n + 1] = value.y;
        to.values[k][n + 2] = value.z, to.values[k][n + 3] = value.w;
      }
    }
  }
}

template <int kIndex>
__device__ __forceinline__ void Step::load_states_of(HeldStates<Kind::cell, kIndex>& to, int layer) {
  using Items = CellItems<kIndex>;
  constexpr int kVector = Items::kOf.x[0];
  if constexpr (Items::kHeld) {
#pragma unroll
    for (int k = 0; k < Items::kPer; ++k) {
      const int item = thread() + k * THREADS, c = item % Items::kOwn;
      if (item >= Items::kItems) continue;
      const float* state = from_place(item / Items::kOwn % AGENTS);
      const int at = state_at<kVector, 1>(layer, Items::kOf.state_at, c);
      const bool exists = has_state<kVector>(state, c);
#pragma unroll
      for (int s = 0; s < Items::kStates; ++s)
        to.values[k][s] = exists ? state[at + s * Items::kUnits] : 0.0f;
    }
  }
}

// The same of all units' states before the frame, which early_products() needs.
__device__ __forceinline__ void Step::load_recalled(int layer) {
  for_each_number<0, kNetwork.layer.count>([&](auto at) __attribute__((always_inline)) {
    constexpr int kAt = decltype(at)::value;
    load_recalled_of(static_cast<HeldLayer<kAt>&>(held_states_).states, layer);
  });
}

template <int kIndex>
__device__ __forceinline__ void Step::load_recalled_of(HeldStates<Kind::cell, kIndex>& to, int layer) {
  using Items = CellItems<kIndex>;
  if constexpr (Items::kRecalls && Items::kRecallHeld) {
#pragma unroll
    for (int k = 0; k < Items::kRecallPer; ++k) {
      to.recalled[k] = recalled_value<kIndex>(layer, thread() + k * THREADS);
    }
  }
}

// Of the states of all units before the frame, value `item` of those of all agents.
template <int kIndex>
__device__ __forceinline__ float Step::recalled_value(int layer, int item) const {
  using Items = CellItems<kIndex>;
  if (item >= Items::kRecalled) return 0.0f;
  const float* const state = from_place(item / Items::kUnits);
  if (state == nullptr) return 0.0f;
  return state[layer * kNetwork.layer_floats + Items::kOf.state_at + item % Items::kUnits];
}

// Puts them where the products of them look for them.
__device__ __forceinline__ void Step::recall(int layer) {
  for_each_number<0, kNetwork.layer.count>([&](auto at) __attribute__((always_inline)) {
    constexpr int kAt = decltype(at)::value;
    recall(static_cast<HeldLayer<kAt>&>(held_states_).states, layer);
  });
}

template <int kIndex>
__device__ __forceinline__ void Step::recall(const HeldStates<Kind::cell, kIndex>& held, int layer) {
  using Items = CellItems<kIndex>;
  if constexpr (Items::kRecalls) {
    float* const to = act_.vector<Items::kOf.before>()[0];
#pragma unroll
    for (int k = 0; k < Items::kRecallPer; ++k) {
      const int item = thread() + k * THREADS;
      if (item >= Items::kRecalled) continue;
      to[item] = Items::kRecallHeld ? held.recalled[k] : recalled_value<kIndex>(layer, item);
    }
  }
}

}  // namespace policy
}  // namespace exphil
