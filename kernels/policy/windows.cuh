// Where the frames of windows are, and what policy/window.cu and policy/window_team.cu have in common: the
// state update over time and the outputs. A Windows is one thread's view.
#pragma once

#include "kernels/policy/arguments.cuh"
#include "kernels/policy/barrier.cuh"
#include "kernels/policy/math.cuh"
#include "kernels/policy/window_layout.cuh"

namespace exphil {
namespace policy {

constexpr int kTimeSteps = window_steps(kDims);
constexpr WindowTimeLayout kTimePart(kDims, kTimeSteps);
constexpr int kChains = kTimeChannels * kState;  // states of a tile of the state update

constexpr bool kInlineFrame = kInput <= kMostInlineObs;
struct alignas(16) InlineFrame {
  float v[kInlineFrame ? kInput : 4];
};

// kThreads: of a block.
template <int kThreads>
class Windows {
 public:
  __device__ __forceinline__ Windows(const WindowArguments& args, const InlineFrame& frame)
      : args_(args),
        obs_(kInlineFrame && args.obs == nullptr ? frame.v : args.obs),
        thread_(static_cast<int>(threadIdx.x)),
        rows_(static_cast<long long>(args.count) * args.seq) {}

 protected:
  template <class T>
  __device__ __forceinline__ const T* of_layer(const T* first, int layer) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + layer * args_.layer_stride);
  }
  __device__ __forceinline__ ProductMatrix of_layer(const ProductMatrix& first, int layer) const {
    const char* const weights = static_cast<const char*>(first.weights);
    return {weights + layer * args_.layer_stride, of_layer(first.bias, layer),
            of_layer(first.row_scale, layer), of_layer(first.row_sums, layer)};
  }

  // Where frame `step` of a window is: for the first layer in front, after it in h and xz.
  __device__ __forceinline__ long long row_of(int layer, int window, int step) const {
    return layer == 0 ? static_cast<long long>(args_.first) + window * args_.front_step + step
                      : static_cast<long long>(window) * args_.seq + step;
  }
  __device__ __forceinline__ const float* h_row(int layer, int window, int step) const {
    return (layer == 0 ? args_.front_h : args_.h) + row_of(layer, window, step) * kModel;
  }
  __device__ __forceinline__ const float* xz_row(int layer, int window, int step) const {
    return (layer == 0 ? args_.front_xz : args_.xz) + row_of(layer, window, step) * 2 * kInner;
  }

  // One value of a fresh frame's row.
  __device__ __forceinline__ void put(float* front, int width, long long row, int column, float value) const {
    const long long last = static_cast<long long>(args_.count - 1) * args_.front_step + args_.seq;
    const long long place = args_.first + last - args_.fresh + row;
    front[place * width + column] = value;
    if (args_.slots == 0) return;
    front[(place < args_.slots ? place + args_.slots : place - args_.slots) * width + column] = value;
  }

  // A value of the last outputs, with the number of the launch.
  __device__ __forceinline__ void store(long long row, int column, float value) const {
    const unsigned long long word =
        static_cast<unsigned long long>(args_.sequence) << 32 | __float_as_uint(value);
    store_system(args_.tagged + row * kOutput + column, word);
  }

  // The state update of each window over time. Of the last layer only the last frame has an output. shared:
  // kTimePart.
  __device__ __forceinline__ void advance_time(int layer, void* shared) const {
    constexpr int kTiles = kInner / kTimeChannels;
    float states[kChainsEach];
    for (int tile = static_cast<int>(blockIdx.x); tile < kTiles * args_.count;
         tile += static_cast<int>(gridDim.x)) {
      TimeTile t{layer, tile / kTiles, tile % kTiles * kTimeChannels, 0, 0};
#pragma unroll
      for (int i = 0; i < kChainsEach; ++i) states[i] = 0.0f;
      for (; t.begin < args_.seq; t.begin += kTimeSteps) {
        t.steps = least(kTimeSteps, args_.seq - t.begin);
        __syncthreads();  // the memory of the tile before
        load_time(t, shared);
        __syncthreads();
        find_decays(t, shared);
        __syncthreads();
        run_chains(t, shared, states);
        __syncthreads();
        read_out(t, shared);
      }
    }
  }

  const WindowArguments& args_;
  const float* const obs_;
  const int thread_;
  const long long rows_;

 private:
  static constexpr int kChainsEach = divide_up(kChains, kThreads);

  // kTimeChannels channels from `first` on of a window, over `steps` steps.
  struct TimeTile {
    int layer, window, first, begin, steps;
  };
  // Whether a step of this tile has an output.
  __device__ __forceinline__ bool has_output(const TimeTile& t, int step) const {
    return t.layer + 1 < kLayers || t.begin + step + 1 == args_.seq;
  }
  __device__ __forceinline__ long long first_row(const TimeTile& t) const {
    return static_cast<long long>(t.window) * args_.seq + t.begin;
  }

  __device__ __forceinline__ void load_time(const TimeTile& t, void* shared) const {
    const long long row = first_row(t);
    for (int i = thread_; i < t.steps * (kState / 2); i += kThreads) {
      const int step = i / (kState / 2), at = i % (kState / 2);
      reinterpret_cast<float4*>(kTimePart.bc.in(shared))[i] =
          reinterpret_cast<const float4*>(args_.projection + (row + step) * kProjection + kRank)[at];
    }
    for (int i = thread_; i < t.steps * kTimeChannels; i += kThreads) {
      const int step = i / kTimeChannels, c = t.first + i % kTimeChannels;
      kTimePart.u.in(shared)[i] = args_.u[(row + step) * kInner + c];
      kTimePart.dt.in(shared)[i] = args_.active_dt[(row + step) * kInner + c];
      if (!has_output(t, step)) continue;
      kTimePart.gate.in(shared)[i] = xz_row(t.layer, t.window, t.begin + step)[kInner + c];
    }
    for (int i = thread_; i < kChains; i += kThreads) {
      kTimePart.a.in(shared)[i] = __ldg(of_layer(args_.a, t.layer) + t.first * kState + i);
    }
    if constexpr (kForm.mean_dt) {
      for (int i = thread_; i < t.steps; i += kThreads) {
        kTimePart.mean_dt.in(shared)[i] = args_.active_dt[rows_ * kInner + row + i];
      }
    }
  }

  // What each step does to each state.
  __device__ __forceinline__ void find_decays(const TimeTile& t, void* shared) const {
    const bool decays = kForm.decays_input && args_.decays_input;
#pragma unroll 4
    for (int i = thread_; i < t.steps * kChains; i += kThreads) {
      const int step = i / kChains, chain = i % kChains;
      const int at = step * kTimeChannels + chain / kState;
      const float dt = kTimePart.dt.in(shared)[at];
      const float input_dt = kForm.mean_dt ? kTimePart.mean_dt.in(shared)[step] : dt;
      const StateStep result = state_step(kTimePart.a.in(shared)[chain],
                                          kTimePart.bc.in(shared)[step * 2 * kState + chain % kState], dt,
                                          __fmul_rn(input_dt, kTimePart.u.in(shared)[at]), decays);
      kTimePart.decays.in(shared)[i] = result.decay;
      kTimePart.states.in(shared)[i] = result.input;
    }
  }

  // Replaces the inputs by the states after them.
  __device__ __forceinline__ void run_chains(const TimeTile& t, void* shared,
                                             float (&states)[kChainsEach]) const {
#pragma unroll
    for (int k = 0; k < kChainsEach; ++k) {
      const int chain = thread_ + k * kThreads;
      if (chain >= kChains) continue;
      const float* decay = kTimePart.decays.in(shared) + chain;
      float* state = kTimePart.states.in(shared) + chain;
      float h = states[k];
#pragma unroll 8
      for (int step = 0; step < t.steps; ++step) {
        h = next_state(h, {decay[step * kChains], state[step * kChains]});
        state[step * kChains] = h;
      }
      states[k] = h;
    }
  }

  // The gated outputs, kLanes lanes to a channel. Whole warps, because these exchange values.
  __device__ __forceinline__ void read_out(const TimeTile& t, void* shared) const {
    const bool last_only = t.layer + 1 == kLayers;
    const int begin = last_only ? t.steps - 1 : 0;
    if (!has_output(t, begin)) return;
    const int items = (t.steps - begin) * kTimeChannels * kLanes;
    for (int i = thread_; i < round_up(items, 32); i += kThreads) {
      const int item = least(i, items - 1), lane = item % kLanes;
      const int at = begin * kTimeChannels + item / kLanes, step = at / kTimeChannels;
      const float* c = kTimePart.bc.in(shared) + step * 2 * kState + kState + lane * kPerLane;
      const float* h = kTimePart.states.in(shared) + at * kState + lane * kPerLane;
      float part = 0.0f;
#pragma unroll
      for (int n = 0; n < kPerLane; ++n) part = __fmaf_rn(c[n], h[n], part);
      const float sum = add_lanes(part);
      if (i >= items || lane != 0) continue;
      const int channel = t.first + at % kTimeChannels;
      args_.y[(last_only ? t.window : first_row(t) + step) * kInner + channel] =
          gate(sum, __ldg(of_layer(args_.d, t.layer) + channel), kTimePart.u.in(shared)[at],
               kTimePart.gate.in(shared)[at]);
    }
  }
};

}  // namespace policy
}  // namespace exphil
