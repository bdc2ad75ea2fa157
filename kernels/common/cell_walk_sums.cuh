// The sums of segments of U h in a walk over a GRU's or an LSTM's frames (common/cell_walk.cuh): by threads,
// in the order of common/dot.cuh, and by warps on tensor cores, in that of common/tensor.cuh. Both load U
// when they are made:
//   Sums(It, staged, rank, thread)       staged: kShape.weights_bytes() of shared memory
//   void sum(states, sums, count)        of `count` sequences; both are of the buffer
#pragma once

#include "kernels/common/cell_walk_layout.cuh"
#include "kernels/common/device_math.cuh"
#include "kernels/common/dot.cuh"
#include "kernels/common/tensor.cuh"

namespace exphil {
namespace walk {

template <class It>
class ThreadSums {
 public:
  using Group = typename It::Group;  // as it is staged

  __device__ __forceinline__ ThreadSums(const It& it, Group* staged, int rank, int thread)
      : staged_(staged), thread_(thread) {
    for_each_weight(it, rank, thread_,
                    [&](int gate, int j, Group weights) { held_[gate][j] = It::widen(weights); });
    if constexpr (kShape.staged() > 0) {
      for (int task = thread_ + kThreads; task < kTasks; task += kThreads) {
        for_each_weight(it, rank, task,
                        [&](int gate, int j, Group weights) { *staged_group(task, gate, j) = weights; });
      }
    }
  }

  // Two sequences at a time: their sums do not wait for each other.
  __device__ __forceinline__ void sum(const float* states, float* sums, int count) const {
#pragma unroll 1
    for (; count > 1; count -= 2, states += 2 * kShape.state_stride(), sums += 2 * kShape.sum_stride()) {
      sum_tasks<2>(states, sums);
    }
    if (count > 0) sum_tasks<1>(states, sums);
  }

 private:
  static constexpr Shape kShape = It::kShape;
  static constexpr int kGates = kShape.gates(), kOwn = kShape.own(), kTasks = kShape.tasks();
  static constexpr int kThreads = kShape.threads(), kFours = kSegment / 4;

  // Calls call(gate, j, weights) for the groups of a task.
  template <class Call>
  static __device__ __forceinline__ void for_each_weight(const It& it, int rank, int task, Call call) {
    const int unit = rank * kOwn + task % kOwn;
    if (task >= kTasks || unit >= kShape.units) return;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
      for (int j = 0; j < kFours; ++j) call(gate, j, it.weights(gate, unit, task / kOwn * kFours + j));
    }
  }
  __device__ __forceinline__ Group* staged_group(int task, int gate, int j) const {
    return staged_ + (gate * kFours + j) * kShape.staged() + task - kThreads;
  }

  // The sums of a task for kTogether sequences. from: their states; to: {kTogether, gates} sums.
  template <int kTogether, class Weights>
  __device__ __forceinline__ void sum_task(const float* from, float* to, Weights weights) const {
    float sum[kTogether][kGates] = {};
#pragma unroll
    for (int j = 0; j < kFours; ++j) {
      float4 h[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        h[i] = *reinterpret_cast<const float4*>(from + i * kShape.state_stride() + 4 * j);
      }
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        const float4 weight = weights(gate, j);
#pragma unroll
        for (int i = 0; i < kTogether; ++i) sum[i][gate] = dot4(weight, h[i], sum[i][gate]);
      }
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        to[i * kShape.sum_stride() + gate * kShape.gate_stride()] = sum[i][gate];
      }
    }
  }
  template <int kTogether>
  __device__ __forceinline__ void sum_tasks(const float* states, float* sums) const {
    if (kTasks == kThreads || thread_ < kTasks) {
      sum_task<kTogether>(states + thread_ / kOwn * kSegmentStride, sums + thread_,
                          [&](int gate, int j) { return held_[gate][j]; });
    }
    if constexpr (kShape.staged() > 0) {
#pragma unroll 1
      for (int task = thread_ + kThreads; task < kTasks; task += kThreads) {
        sum_task<kTogether>(states + task / kOwn * kSegmentStride, sums + task,
                            [&](int gate, int j) { return It::widen(*staged_group(task, gate, j)); });
      }
    }
  }

  Group* const staged_;
  const int thread_;
  float4 held_[kGates][kFours] = {};
};

template <class It>
class WarpSums {
 public:
  using Group = float4;

  __device__ __forceinline__ WarpSums(const It& it, float4* staged, int rank, int thread)
      : lane_(thread % 32), warp_(thread / 32), staged_(staged + lane_) {
    for_each_weight(it, rank, warp_,
                    [&](int gate, int tile, float4 weights) { held_[tile][gate] = weights; });
    if constexpr (kShape.staged() > 0) {
      for (int task = warp_ + kWarps; task < kTasks; task += kWarps) {
        for_each_weight(it, rank, task, [&](int gate, int tile, float4 weights) {
          *staged_group(task, gate, tile) = weights;
        });
      }
    }
  }

  __device__ __forceinline__ void sum(const float* states, float* sums, int count) const {
    if (kShape.sequences() > kRows && count > kRows) {
      sum_tasks<2>(states, sums, count);
    } else {
      sum_tasks<1>(states, sums, count);
    }
  }

 private:
  static constexpr Shape kShape = It::kShape;
  static constexpr int kGates = kShape.gates(), kOwn = kShape.own(), kTasks = kShape.tasks();
  static constexpr int kWarps = kShape.held(), kTiles = kSegment / 8, kUnits = kShape.task_units();
  static constexpr int kRows = 8;  // of a tile

  static __device__ __forceinline__ int segment_of(int task) { return task / (kOwn / kUnits); }
  static __device__ __forceinline__ int unit_of(int task) { return task % (kOwn / kUnits) * kUnits; }

  // Calls call(gate, tile of 8 k, weights) for the lane's weights of a task.
  template <class Call>
  static __device__ __forceinline__ void for_each_weight(const It& it, int rank, int task, Call call) {
    const int unit = rank * kOwn + unit_of(task);
    if (task >= kTasks || unit >= kShape.units) return;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        call(gate, tile, it.tensor_weights(gate, unit, segment_of(task) * kTiles + tile));
      }
    }
  }
  __device__ __forceinline__ float4* staged_group(int task, int gate, int tile) const {
    return staged_ + (((task - kWarps) * kGates + gate) * kTiles + tile) * 32;
  }

  // Of up to kTogether times eight sequences.
  template <int kTogether>
  __device__ __forceinline__ void sum_tasks(const float* states, float* sums, int count) const {
    if (kTasks == kWarps || warp_ < kTasks) {
      sum_task<kTogether>(warp_, states, sums, count, [&](int tile, int gate) { return held_[tile][gate]; });
    }
    if constexpr (kShape.staged() > 0) {
#pragma unroll 1
      for (int task = warp_ + kWarps; task < kTasks; task += kWarps) {
        sum_task<kTogether>(task, states, sums, count,
                            [&](int tile, int gate) { return *staged_group(task, gate, tile); });
      }
    }
  }
  template <int kTogether, class Weights>
  __device__ __forceinline__ void sum_task(int task, const float* states, float* sums, int count,
                                           Weights weights) const {
    const float* const from = states + lane_ / 4 % kShape.sequences() * kShape.state_stride() +
                              segment_of(task) * kSegmentStride + lane_ % 4 * 4;
    float* const to = sums + segment_of(task) * kOwn + unit_of(task);
    device::TensorSums made[kGates][kTogether] = {};
    device::add_segment_on_tensor_cores<kGates, kTogether>(
        [&](int tile, int gate) { return device::tensor_weights(weights(tile, gate)); },
        [&](int half, int n) {
          return *reinterpret_cast<const float4*>(from + n * kRows * kShape.state_stride() + 16 * half);
        },
        made);
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int sequence = n * kRows + device::tensor_row(lane_, i);
        if (sequence >= count) continue;
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          to[sequence * kShape.sum_stride() + gate * kShape.gate_stride() + device::tensor_column(lane_, i)] =
              made[gate][n].of[i];
        }
      }
    }
  }

  const int lane_, warp_;
  float4* const staged_;
  float4 held_[kTiles][kGates] = {};
};

// Those of a walk.
template <class It, bool kTensor>
struct SumsOf {
  using Type = ThreadSums<It>;
};
template <class It>
struct SumsOf<It, true> {
  using Type = WarpSums<It>;
};
template <class It>
using Sums = typename SumsOf<It, It::kShape.tensor>::Type;

}  // namespace walk
}  // namespace exphil
