// Windows of one agent for a team of blocks as a class, shared by the phases in policy/window_team.cu. A
// TeamWindow is one thread's view.
#pragma once

#include "kernels/common/device_memory.cuh"
#include "kernels/policy/own.cuh"
#include "kernels/policy/windows.cuh"

namespace exphil {
namespace policy {

constexpr WindowTeamLayout kPart(kNetwork, WindowTeamShape{TEAM, THREADS, ROWS});
// Frames of a team at a time, and with those before them.
constexpr int kRows = ROWS, kAll = kPart.all, kFramesBefore = kWindow.history;
constexpr int kWideFrame = kFrameSize / 4, kObsEach = divide_up(kAll * kWideFrame, THREADS*TEAM);

// The columns of a product that a block has, one output after another.
template <int kProduct>
struct OwnOf {
  static constexpr Product kP = kNetwork.products[kProduct];
  static constexpr int kColumns = own_channels(kNetwork, kP, kP.outputs, TEAM);
  static constexpr int vector(int output) { return kP.out[output].vector; }
  static constexpr int first(int output) { return own_channels(kNetwork, kP, output, TEAM); }
};

// The leading product: a block has its channels of each output, for all frames where a convolution reads
// them, otherwise for the team's own.
constexpr int kLeadOwn = lead_channels(kNetwork, kWindow, TEAM);
constexpr int kLeadSegments = kHiddenSize / kSegment, kLeadTasks = kLeadOwn * kLeadSegments;
constexpr int kLeadOutputs = kNetwork.products[kLead].outputs;
constexpr int lead_skips(int output) {
  return kWindow.vectors[kNetwork.products[kLead].out[output].vector].convolved ? 0 : kFramesBefore;
}
constexpr bool lead_late(int output) {
  return kWindow.vectors[kNetwork.products[kLead].out[output].vector].late();
}
// Frames of the first `outputs` outputs, with the late ones or without.
constexpr int lead_frames(int outputs, bool late = true) {
  int frames = 0;
  for (int o = 0; o < outputs; ++o) frames += late || !lead_late(o) ? kAll - lead_skips(o) : 0;
  return frames;
}

// This block's columns of a product for one row after another: sums over segments. Few weights are loaded
// before the rows are there.
template <int kProduct>
class OwnColumns {
 public:
  static constexpr int kIn = size_of(kNetwork.products[kProduct].in);
  static constexpr int kOutputs = kNetwork.rows(kNetwork.products[kProduct]);
  static constexpr int kColumns = divide_up(kOutputs, TEAM);
  static constexpr int kSegs = kIn / kSegment, kTasks = kSegs * kColumns;

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

  // parts: {kCount, kTasks}; x: {kCount, kIn}
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
              dot4(weight, *reinterpret_cast<const float4*>(x + i * kIn + task / kColumns * kSegment + 4 * j),
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
    return task < kTasks && (kColumns * TEAM == kOutputs || task % kColumns < columns_);
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

constexpr int kInputProduct = kNetwork.input.phases[0].index, kOutputPhases = kNetwork.output.count;
using InputColumns = OwnColumns<kInputProduct>;
using ClosingColumns = OwnColumns<kClose>;
using LastColumns = OwnColumns<kNetwork.output.phases[kOutputPhases - 1].index>;

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
  // A team's frames: kRows of a window from step `begin` on. Local frame i is step begin - kFramesBefore + i.
  struct Frames {
    int layer, window, begin;
    int fresh;  // the first local frame whose leading product is computed here
    __device__ __forceinline__ int step(int local) const { return begin - kFramesBefore + local; }
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
  // Channels of a vector of kSize channels that this block has.
  template <int kOwn, int kSize>
  __device__ __forceinline__ int own_count() const {
    if constexpr (kOwn * TEAM == kSize) return kOwn;
    return most(0, least(kOwn, kSize - rank_ * kOwn));
  }

  __device__ void stage(int layer);
  template <int kAt>
  __device__ void stage_phase(int layer);
  template <int kAt, int kProduct, int kOut>
  __device__ void stage_columns(const ProductMatrix& from);
  template <int kRun, int kCount>
  __device__ void stage_rows(void* to, int to_stride, const void* from, int stride, int rows, int bytes);
  // Waits for what stage() loads.
  static __device__ __forceinline__ void await_staged() {
    device::copies_done();
    __syncthreads();
  }
  __device__ void first_layer();
  __device__ void later_layer(int layer, const ClosingColumns& columns);
  __device__ void read_obs(const Frames& f, float4 (&values)[kObsEach]) const;
  __device__ void share_obs(const float4 (&values)[kObsEach]) const;
  // The float4 of the frames' observations that this thread reads: whole warps read in one piece, and the
  // team's blocks in turns.
  __device__ __forceinline__ int obs_item(int k) const {
    return ((k * (THREADS / 32) + thread_ / 32) * TEAM + rank_) * 32 + thread_ % 32;
  }
  __device__ void input(const Frames& f, const InputColumns& columns);
  __device__ void closing(const Frames& f, const ClosingColumns& columns);
  template <int kCount, int kProduct, class Before, class Keep>
  __device__ void hidden_rows(const OwnColumns<kProduct>& columns, const ProductMatrix& matrix,
                              const float* x, Before before, Keep keep);
  template <int kProduct>
  __device__ void norms(int count);
  __device__ void leading(const Frames& f);
  template <bool kLate>
  __device__ void leading_sums();
  template <int kOut>
  __device__ void leading_values(const Frames& f);
  template <bool kKept>
  __device__ void keep_leading(const Frames& f, int local, int column, float value);
  __device__ void load_leading(const Frames& f);
  __device__ void row_phases(const Frames& f);
  template <int kAt>
  __device__ void row_phase(const Frames& f);
  template <int kConvolution, int kAt>
  __device__ void convolve_rows(const Frames& f);
  template <int kVector>
  __device__ void keep_own(const Frames& f) const;
  template <int kProduct, int kAt>
  __device__ void multiply_rows(const Frames& f);
  template <int kProduct, int kAt>
  __device__ void finish_rows(const Frames& f);
  template <int kProduct, int kAt, int kOut>
  __device__ void multiply_short(const Frames& f);
  template <int kMean>
  __device__ void mean_of_rows(const Frames& f);
  __device__ void answers(const ClosingColumns& columns, unsigned before);
  __device__ void answer(int window, const ClosingColumns& columns, const LastColumns& last);
  template <int kAt>
  __device__ void output(int window, const OwnColumns<kNetwork.output.phases[kAt].index>& columns);

  // The hidden values before a layer. A layer writes the next one's beside it, because other teams still read
  // it.
  __device__ __forceinline__ float* layer_hidden(int layer, int window, int step) const {
    if (layer == 0) return args_.front_hidden + row_of(0, window, step) * kHiddenSize;
    return memory<kNetwork.hidden>(layer % 2 * rows_ + row_of(layer, window, step));
  }
  template <int kVector>
  __device__ __forceinline__ float* own() const {
    return kPart.vectors[kVector].in(act_);
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

  char* const staged_;  // kPart.weights
  char* const act_;     // the rest of kPart, or kTimePart
  int rank_;
  const int team_, teams_;
};

}  // namespace policy
}  // namespace exphil
