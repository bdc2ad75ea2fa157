// The team's step as a class, shared by the phases in policy/step.cu. A Step is one thread's view of its
// block.
#pragma once

#include "kernels/policy/activations.cuh"
#include "kernels/policy/arguments.cuh"
#include "kernels/policy/dot.cuh"
#include "kernels/policy/math.cuh"
#include "kernels/policy/team.cuh"

namespace exphil {
namespace policy {

struct InlineObs {
  float v[kDims.d_input <= kMostInlineObs ? kDims.d_input : 1];
};

constexpr int kInTasks = 2 * kOwn * kModelSegments;
constexpr int kInPer = divide_up(kInTasks, THREADS);
constexpr bool kHoldInProj = kInPer <= 2;  // up to 64 registers

constexpr int kConvItems = AGENTS * 2 * kOwn;
constexpr int kConvPer = divide_up(kConvItems, THREADS);
constexpr bool kHoldHistory = kConvPer * kHistory <= 16;

constexpr int kSsmItems = AGENTS * kOwn * kLanes;
constexpr int kSsmPer = divide_up(kSsmItems, THREADS);
constexpr bool kHoldStates = kSsmPer * kPerLane <= 16;

// Calls sink(agent, task, sum) for every segment sum of a matrix of kRowsIn rows and kSegs segments with the
// AGENTS vectors x. Where there are few tasks, the agents are distributed over the remaining threads.
template <int kRowsIn, int kSegs, bool kShared, class Sink>
__device__ __forceinline__ void segment_sums(const void* weights, const float* x, int x_stride, Sink sink) {
  constexpr int kTasks = kRowsIn * kSegs;
  constexpr int kPadded = round_up(kTasks, 32);
  constexpr int kSpread = least(AGENTS, power_of_two_within(THREADS / kPadded));
  constexpr int kEach = AGENTS / kSpread;
  const auto* w = static_cast<const Group*>(weights);
  for (int item = thread(); item < kPadded * kSpread; item += THREADS) {
    const int task = item % kPadded;
    if (task >= kTasks) continue;
    const int first = item / kPadded * kEach;
    const float* values = x + first * x_stride + task / kRowsIn * kSegment;
    float sum[kEach] = {};
#pragma unroll
    for (int j = 0; j < kSegment / 4; ++j) {
      const float4 weight = widen(kShared && STAGED ? w[j * kTasks + task] : __ldg(w + j * kTasks + task));
#pragma unroll
      for (int a = 0; a < kEach; ++a) {
        sum[a] = dot4(weight, *reinterpret_cast<const float4*>(values + a * x_stride + 4 * j), sum[a]);
      }
    }
#pragma unroll
    for (int a = 0; a < kEach; ++a) sink(first + a, task, sum[a]);
  }
}

class Step {
 public:
  __device__ __forceinline__ Step(const StepArguments& args, char* shared, int rank)
      : args_(args),
        act_(shared + kStagedBytes),
        staged_(shared),
        share_(static_cast<const char*>(args.weights) + rank * kTeam.bytes),
        board_(&act_.h[0][0], static_cast<float*>(args.board), TeamBarrier(args.barrier)),
        rank_(rank) {}

  // Starts loading all weights of this block; the first use needs the block's sync in group().
  __device__ __forceinline__ void start() {
#if STAGED
    if (thread() == 0) {
      for (int i = 0; i < 2 + kLayers; ++i) bulk_init(act_.arrived + i);
      bulk_publish_init();
      stage(0, kTeam.input_at, kTeam.input.bytes);
      for (int l = 0; l < kLayers; ++l) stage(2 + l, kTeam.layer_at(l), kTeam.layer.bytes);
      stage(1, kTeam.head_at, kTeam.head.bytes);
    }
#endif
    hold_in_proj(0);
  }

  // One frame for the AGENTS agents from `first` on.
  __device__ __forceinline__ void group(int first, bool first_group, const float* inline_obs) {
    load_group(first, inline_obs);
    // No push may reach a block before it runs (a cluster) or while it reads the previous group's values.
    answer(first, !CLUSTER && first_group);
  }

  // The frame for act_.obs. pushes: every block is ready for them.
  __device__ __forceinline__ void answer(int first, bool pushes) {
    input(pushes);
#pragma unroll 1
    for (int l = 0; l < kLayers; ++l) layer(l, l + 1 < kLayers ? l + 1 : 0);
    head(first);
  }

  // Of a launch ahead of its observation: policy/armed.cuh.
  __device__ bool await(const ArmedArguments& armed);
  __device__ void finish_staging() const;

 private:
  __device__ void input(bool pushes);
  __device__ void layer(int index, int next_index);
  __device__ void in_proj(int layer, int next_layer);
  __device__ void convolve_rows(const char* w, int layer);
  __device__ void project(const char* w);
  __device__ void activate_all_dt(const char* w);
  __device__ void advance_states(const char* w, int layer);
  __device__ void head(int first);
  template <int kHiddenRows>
  __device__ void hidden_layer(const char* w);
  __device__ void push_obs(const ArmedArguments& armed);

  // Waits for a section of the weights and returns its address.
  __device__ __forceinline__ const char* section(int arrived, long long at) const {
#if STAGED
    bulk_wait(act_.arrived + arrived);
    return staged_ + at;
#else
    (void)arrived;
    return share_ + at;
#endif
  }

#if STAGED
  __device__ __forceinline__ void stage(int arrived, long long at, long long bytes) {
    bulk_copy(act_.arrived + arrived, staged_ + at, share_ + at, static_cast<unsigned>(bytes));
  }
#endif

  __device__ __forceinline__ void hold_in_proj(int layer) {
    if constexpr (kHoldInProj) {
      const auto* w =
          reinterpret_cast<const Group*>(kTeam.in_proj.weight.in(share_ + kTeam.in_proj_at(layer)));
#pragma unroll
      for (int i = 0; i < kInPer; ++i) {
        const int task = thread() + i * THREADS;
#pragma unroll
        for (int j = 0; j < kSegment / 4; ++j) {
          if (task < kInTasks) held_[i][j] = __ldg(w + j * kInTasks + task);
        }
      }
    }
  }

  // The caller synchronises the block.
  __device__ __forceinline__ void load_places(int first) {
    if (thread() < AGENTS) {
      const int agent = first + thread();
      StatePlace place{nullptr, nullptr};
      if (agent < args_.count) place = args_.states == nullptr ? args_.state : args_.states[agent];
      act_.from[thread()] = place.from;
      act_.to[thread()] = place.to;
    }
  }

  __device__ __forceinline__ void load_group(int first, const float* inline_obs) {
    load_places(first);
    // Reads through an address that the compiler cannot trace to the parameter bank: indexed reads of that
    // bank are one word at a time for the entire warp.
    const float* from_parameters = launder(inline_obs);
    for (int i = thread(); i < AGENTS * kInput; i += THREADS) {
      const int agent = first + i / kInput, k = i % kInput;
      float value = 0.0f;
      if (args_.obs == nullptr) {
        if (agent == 0 && k < kDims.d_input) value = from_parameters[k];
      } else if (agent < args_.count) {
        value = __ldcs(args_.obs + static_cast<long long>(agent) * kInput + k);
      }
      (&act_.obs[0][0])[i] = value;
    }
    __syncthreads();
  }

  // The address in an agent's state for channel c of this block; null where there is no such agent or
  // channel.
  template <class T>
  __device__ __forceinline__ T* conv_state(T* state, int layer, int c) const {
    const int channel = rank_ * kOwn + c;
    return state == nullptr || channel >= kInner ? nullptr
                                                 : state + layer * kLayerStateFloats + kSsmFloats + channel;
  }
  template <class T>
  __device__ __forceinline__ T* ssm_state(T* state, int layer, int c, int lane) const {
    const int channel = rank_ * kOwn + c;
    return state == nullptr || channel >= kInner
               ? nullptr
               : state + layer * kLayerStateFloats + channel * kState + lane * kPerLane;
  }

  // Prefetches the layer's recurrent state into registers.
  __device__ __forceinline__ void load_states(int layer) {
    if constexpr (kHoldHistory && kHistory > 0) {
#pragma unroll
      for (int k = 0; k < kConvPer; ++k) {
        const int item = thread() + k * THREADS, row = item % (2 * kOwn);
        if (item >= kConvItems || row >= kOwn) continue;
        const float* from = conv_state(act_.from[item / (2 * kOwn)], layer, row);
#pragma unroll
        for (int t = 0; t < kHistory; ++t) history_[k][t] = from == nullptr ? 0.0f : from[t * kInner];
      }
    }
    if constexpr (kHoldStates) {
#pragma unroll
      for (int k = 0; k < kSsmPer; ++k) {
        const int item = thread() + k * THREADS;
        if (item >= kSsmItems) continue;
        const float* from =
            ssm_state(act_.from[item / (kOwn * kLanes)], layer, item / kLanes % kOwn, item % kLanes);
#pragma unroll
        for (int n = 0; n < kPerLane; n += 4) {
          const float4 value =
              from == nullptr ? make_float4(0, 0, 0, 0) : *reinterpret_cast<const float4*>(from + n);
          states_[k][n] = value.x, states_[k][n + 1] = value.y;
          states_[k][n + 2] = value.z, states_[k][n + 3] = value.w;
        }
      }
    }
  }

  // The norm's factors for each agent's h, one warp per agent.
  __device__ __forceinline__ void norm_scales() {
    for (int a = thread() / 32; a < AGENTS; a += THREADS / 32) {
      const NormFactors norm = norm_factors(act_.h[a], args_.epsilon);
      if (thread() % 32 != 0) continue;
      act_.norm_scale[a] = norm.scale;
      if constexpr (kDims.centres()) act_.norm_mean[a] = norm.mean;
    }
  }

  template <int kRowsIn, int kSegs>
  __device__ __forceinline__ void part_sums(const void* weights, const float* x, int x_stride) {
    segment_sums<kRowsIn, kSegs, true>(weights, x, x_stride, [&](int a, int task, float sum) {
      act_.parts[a * kRowsIn * kSegs + task] = sum;
    });
  }

  template <int kSegs>
  __device__ __forceinline__ float row_sum(int agent, int row, int rows) const {
    return add_segments<kSegs>(act_.parts + agent * rows * kSegs + row, rows);
  }

  // Pushes this block's rows of h from act_.parts to all blocks. Several threads add up the same row and
  // share the pushes.
  template <int kSegs, bool kResidual>
  __device__ __forceinline__ void model_rows(const RowVectors& rows, const char* w) {
    constexpr int kSharers = least(TEAM, power_of_two_within(THREADS / (AGENTS * kRows)));
    for (int i = thread(); i < AGENTS * kRows * kSharers; i += THREADS) {
      const int sharer = i / (AGENTS * kRows), agent = i / kRows % AGENTS, row = i % kRows;
      const int model_row = rank_ * kRows + row;
      if (model_row >= kModel) continue;
      float value = plain_value(row_sum<kSegs>(agent, row, kRows), rows, w, row);
      if (kResidual) value = __fadd_rn(value, act_.residual[agent][row]);
      board_.push(&act_.h[agent][model_row], value, sharer, kSharers);
    }
    board_.exchange(&act_.h[0][0], AGENTS * kModel);
  }

  // The sum of a row that reads h through a norm, with its bias.
  __device__ __forceinline__ float normed_value(float sum, int agent, const RowVectors& rows, const char* w,
                                                int row) const {
    const float mean = kDims.centres() ? act_.norm_mean[agent] : 0.0f;
    sum = centred(sum, rows.scale.in(w), rows.sums.in(w), row, mean);
    return __fmaf_rn(sum, act_.norm_scale[agent], rows.bias.in(w)[row]);
  }
  __device__ __forceinline__ float plain_value(float sum, const RowVectors& rows, const char* w,
                                               int row) const {
    return __fadd_rn(scaled(sum, rows.scale.in(w), row), rows.bias.in(w)[row]);
  }
  // The same of a head over the hidden state, which is normalised where the policy has a final norm.
  __device__ __forceinline__ float head_value(float sum, int agent, const RowVectors& rows, const char* w,
                                              int row) const {
    return kForm.final_norm ? normed_value(sum, agent, rows, w, row) : plain_value(sum, rows, w, row);
  }

  __device__ __forceinline__ void store(int agent, int output, float value) const {
    const long long index = static_cast<long long>(agent) * kOutput + output;
    if (args_.out != nullptr) {
      args_.out[index] = value;
    } else {
      // One 8-byte store: the host sees a value only together with the number of its step, so no fence or
      // flag is needed.
      const unsigned long long word =
          (static_cast<unsigned long long>(args_.sequence) << 32) | __float_as_uint(value);
      store_system(args_.tagged + index, word);
    }
  }

  const StepArguments& args_;
  const Activations act_;
  char* staged_;
  const char* share_;
  Board board_;
  int rank_;
  Group held_[kHoldInProj ? kInPer : 1][kSegment / 4];
  float history_[kHoldHistory ? kConvPer : 1][kHistory > 0 ? kHistory : 1];
  float states_[kHoldStates ? kSsmPer : 1][kPerLane];
};

}  // namespace policy
}  // namespace exphil
