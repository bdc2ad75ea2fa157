// Windows of one agent for a team of blocks as a class, shared by the phases in policy/window_team.cu. A
// TeamWindow is one thread's view.
#pragma once

#include "kernels/common/device_math.cuh"
#include "kernels/policy/epilogues.cuh"
#include "kernels/policy/windows.cuh"

namespace exphil {
namespace policy {

constexpr WindowTeamLayout kPart(kDims, WindowTeamShape{TEAM, THREADS, ROWS});
constexpr int kInnerSegments = kInner / kSegment, kModelSegments = kModel / kSegment;
constexpr int kOwn = kPart.share.own, kOwnSegments = kPart.share.own_segments;
// Frames of a team at a time, and with those before them.
constexpr int kRows = ROWS, kAll = kPart.all;
constexpr int kWideInput = kInput / 4, kObsEach = divide_up(kAll * kWideInput, THREADS*TEAM);

// This block's columns of a matrix for one row after another: sums over segments. Few weights are loaded
// before the rows are there.
template <int kK, int kOutputs, int kColumns>
class OwnColumns {
 public:
  static constexpr int kSegs = kK / kSegment, kOwnColumns = kColumns, kTasks = kSegs * kColumns;

  __device__ __forceinline__ OwnColumns(const void* weights, int rank, int thread)
      : weights_(static_cast<const Group*>(weights) + rank * kColumns),
        columns_(kOutputs - rank * kColumns),
        thread_(thread) {
    if constexpr (kHold) {
#pragma unroll
      for (int j = 0; j < kSegment / 4; ++j) {
        if (has(thread)) held_[j] = load(thread, j);
      }
    }
  }

  // parts: {kCount, kTasks}; x: {kCount, kK}
  template <int kCount>
  __device__ __forceinline__ void sum_segments(const float* x, float* parts) const {
    for (int task = thread_; task < kTasks; task += THREADS) {
      if (!has(task)) continue;
      float sum[kCount] = {};
#pragma unroll
      for (int j = 0; j < kSegment / 4; ++j) {
        const float4 weight = widen(kHold ? held_[kHold ? j : 0] : load(task, j));
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          sum[i] =
              dot4(weight, *reinterpret_cast<const float4*>(x + i * kK + task / kColumns * kSegment + 4 * j),
                   sum[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) parts[i * kTasks + task] = sum[i];
    }
  }

 private:
  static constexpr bool kHold = kTasks <= THREADS;

  __device__ __forceinline__ bool has(int task) const {
    return task < kTasks && task % kColumns < columns_;
  }
  __device__ __forceinline__ Group load(int task, int j) const {
    const int k = task / kColumns * (kSegment / 4) + j;
    return __ldg(weights_ + static_cast<long long>(k) * product_columns(kOutputs) + task % kColumns);
  }

  const Group* const weights_;
  const int columns_;  // from this block's first one on
  const int thread_;
  Group held_[kHold ? kSegment / 4 : 1];
};

using InputColumns = OwnColumns<kInput, kModel, kPart.share.rows>;
using OutColumns = OwnColumns<kInner, kModel, kPart.share.rows>;
using HiddenColumns = OwnColumns<kModel, kHidden, most(kPart.share.hidden, 1)>;
using HeadColumns = OwnColumns<kHeadDepth, kOutput, kPart.share.heads>;

// What completes the last product; a hidden layer before it has the norm.
template <bool kOnly>
struct HeadOf : HeadEpilogue<false> {};
template <>
struct HeadOf<false> : BiasEpilogue {};

class TeamWindow : Windows<THREADS> {
 public:
  __device__ __forceinline__ TeamWindow(const WindowArguments& args, const InlineFrame& frame, char* shared)
      : Windows<THREADS>(args, frame),
        staged_(shared),
        act_(shared + kPart.activations_at),
        rank_(static_cast<int>(blockIdx.x) % TEAM),
        team_(static_cast<int>(blockIdx.x) / TEAM),
        teams_(static_cast<int>(gridDim.x) / TEAM) {}

  __device__ void run();

 private:
  // A team's frames: kRows of a window from step `begin` on. Local frame i is step begin - kHistory + i.
  struct Frames {
    int window, begin;
    int fresh;  // the first local frame whose xz is computed here
    __device__ __forceinline__ int step(int local) const { return begin - kHistory + local; }
  };
  __device__ __forceinline__ int groups() const { return args_.count * divide_up(args_.seq, kRows); }
  __device__ Frames frames(int layer, int group) const;
  __device__ __forceinline__ bool exists(const Frames& f, int local) const {
    return f.step(local) >= 0 && f.step(local) < args_.seq;
  }
  __device__ __forceinline__ long long row(const Frames& f, int local) const {
    return static_cast<long long>(f.window) * args_.seq + f.step(local);
  }
  __device__ __forceinline__ bool keeps(const Frames& f, int local) const;
  __device__ __forceinline__ long long fresh_row(const Frames& f, int local) const;

  __device__ void stage(int layer);
  template <int kRun>
  __device__ void stage_rows(void* to, int to_stride, const void* from, long long stride, int count,
                             int valid);
  // Waits for what stage() loads.
  static __device__ __forceinline__ void await_staged() {
    device::copies_done();
    __syncthreads();
  }
  __device__ void first_layer();
  __device__ void later_layer(int layer, const OutColumns& columns);
  __device__ void read_obs(const Frames& f, float4 (&values)[kObsEach]) const;
  __device__ void share_obs(const float4 (&values)[kObsEach]) const;
  // The float4 of the frames' observations that this thread reads: whole warps read in one piece, and the
  // team's blocks in turns.
  __device__ __forceinline__ int obs_item(int k) const {
    return ((k * (THREADS / 32) + thread_ / 32) * TEAM + rank_) * 32 + thread_ % 32;
  }
  __device__ void input(const Frames& f, const InputColumns& columns);
  __device__ void out_proj(int layer, const Frames& f, const OutColumns& columns);
  template <int kCount, bool kAdds, class Columns, class Before, class Keep>
  __device__ void model_rows(const Columns& columns, const ProductMatrix& matrix, const float* x,
                             Before before, Keep keep);
  __device__ void norms(int count);
  __device__ void in_proj(int layer, const Frames& f);
  template <bool kGates>
  __device__ void in_proj_sums();
  __device__ void keep_in_proj(int layer, const Frames& f, int local, int column, float value);
  __device__ void load_x(const Frames& f);
  __device__ void finish_frames(int layer, const Frames& f);
  __device__ void convolve_rows(const Frames& f);
  __device__ void project(int layer, const Frames& f);
  __device__ void activate_all_dt(const Frames& f);
  __device__ void answer(int window, const OutColumns& columns, const HeadColumns& head);
  __device__ void hidden_layer();
  template <class Epilogue>
  __device__ float finish_head(const ProductMatrix& matrix, float sum, int column) const;

  // h before a layer. A layer writes the next one's beside it, because other teams still read it.
  __device__ __forceinline__ float* layer_h(int layer, int window, int step) const {
    if (layer == 0) return args_.front_h + row_of(0, window, step) * kModel;
    return args_.h + (layer % 2 * rows_ + row_of(layer, window, step)) * kModel;
  }

  // Barrier of all threads of the team; their earlier writes to shared memory are visible after it.
  static __device__ __forceinline__ void team_sync() {
#if CLUSTER
    cluster_sync();
#else
    __syncthreads();
#endif
  }
  // Writes to the same address in the shared memory of a block of the team, or of all of them.
  template <class T>
  static __device__ __forceinline__ void push(T* place, int rank, T value) {
#if CLUSTER
    store_cluster(place, rank, value);
#else
    *place = value;
    (void)rank;
#endif
  }
  template <class T>
  static __device__ __forceinline__ void push_to_all(T* place, T value) {
#pragma unroll
    for (int rank = 0; rank < TEAM; ++rank) push(place, rank, value);
  }

  __device__ __forceinline__ const char* staged() const {
    return staged_;
  }

  char* const staged_;  // kPart.weights
  char* const act_;     // the rest of kPart, or kTimePart
  const int rank_, team_, teams_;
};

}  // namespace policy
}  // namespace exphil
