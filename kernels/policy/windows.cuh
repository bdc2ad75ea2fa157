// Where the frames of windows are, and what policy/window.cu and policy/window_team.cu have in common: the
// scans over time and the outputs. A Windows is one thread's view.
#pragma once

#include "kernels/policy/arguments.cuh"
#include "kernels/policy/barrier.cuh"
#include "kernels/policy/tagged.cuh"
#include "kernels/policy/window_values.cuh"

namespace exphil {
namespace policy {

constexpr bool kInlineFrame = kFrameSize <= kMostInlineObs;
struct alignas(16) InlineFrame {
  float v[kInlineFrame ? kFrameSize : 4];
};

template <int kScan>
struct TimeOf {
  static constexpr Scan kPhase = kNetwork.scans[kScan];
  static constexpr int kState = size_of(kPhase.b), kSteps = window_steps(kNetwork, kPhase);
  static constexpr int kLanesEach = Lanes(values_of(kPhase.b)).lanes, kEach = kState / kLanesEach;
  static constexpr int kStates = kTimeChannels * kState;  // of a tile
};
template <int kScan>
constexpr WindowTimeLayout kTimePart(kNetwork, kNetwork.scans[kScan], TimeOf<kScan>::kSteps);

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
  // The weights of phase kAt of a layer.
  template <int kAt>
  __device__ __forceinline__ ProductMatrix weights(int layer) const {
    const ProductMatrix& first = args_.weights[kNetwork.input.count + kAt];
    const char* const weights = static_cast<const char*>(first.weights);
    return {weights + layer * args_.layer_stride, of_layer(first.bias, layer),
            of_layer(first.row_scale, layer), of_layer(first.row_sums, layer)};
  }
  template <int kAt>
  __device__ __forceinline__ const ProductMatrix& output_weights() const {
    return args_.weights[kNetwork.input.count + kNetwork.layer.count + kAt];
  }

  // Where frame `step` of a window is: for the first layer in the front, after it between the layers.
  __device__ __forceinline__ long long row_of(int layer, int window, int step) const {
    return layer == 0 ? static_cast<long long>(args_.first) + window * args_.front_step + step
                      : static_cast<long long>(window) * args_.seq + step;
  }
  __device__ __forceinline__ const float* hidden_row(int layer, int window, int step) const {
    return (layer == 0 ? args_.front_hidden : memory<kNetwork.hidden>(0)) +
           row_of(layer, window, step) * kHiddenSize;
  }
  // The leading product's outputs.
  __device__ __forceinline__ const float* lead_row(int layer, int window, int step) const {
    return (layer == 0 ? args_.front_lead : memory<kLeadVector>(0)) +
           row_of(layer, window, step) * kLeadWidth;
  }
  // A vector of a row between the layers.
  template <int kVector>
  __device__ __forceinline__ float* memory(long long row) const {
    constexpr WindowVector kAt = kWindow.vectors[kVector];
    return args_.values[kAt.buffer] + row * kWindow.widths[kAt.buffer] + kAt.at;
  }
  // A vector that the leading product writes, or a phase of rows.
  template <int kVector>
  __device__ __forceinline__ const float* vector_row(int layer, int window, int step) const {
    if constexpr (kWindow.vectors[kVector].writer == Writer::lead) {
      return lead_row(layer, window, step) + kWindow.vectors[kVector].at;
    } else {
      return memory<kVector>(static_cast<long long>(window) * args_.seq + step);
    }
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
    store_tagged(args_.tagged + row * kOutSize + column, args_.sequence, value);
  }

  // The scans of a layer, over each window. Of the last layer only the last frame has an output. shared:
  // kTimePart.
  __device__ __forceinline__ void advance_time(int layer, void* shared) const {
    for_each_number<kWindow.rows_end, kLastPhase>([&](auto at) {
      scan<kNetwork.layer.phases[decltype(at)::value].index, decltype(at)::value>(layer, shared);
    });
  }

  const WindowArguments& args_;
  const float* const obs_;
  int thread_;
  const long long rows_;

 private:
  template <int kScan>
  static constexpr int kChainsEach = divide_up(TimeOf<kScan>::kStates, kThreads);

  // kTimeChannels channels from `first` on of a window, over `steps` steps.
  struct TimeTile {
    int layer, window, first, begin, steps;
  };
  // Whether a step of this tile has an output.
  __device__ __forceinline__ bool has_output(const TimeTile& t, int step) const {
    return t.layer + 1 < kLayerCount || t.begin + step + 1 == args_.seq;
  }
  __device__ __forceinline__ long long first_row_of(const TimeTile& t) const {
    return static_cast<long long>(t.window) * args_.seq + t.begin;
  }

  template <int kScan, int kAt>
  __device__ __forceinline__ void scan(int layer, void* shared) const {
    using Time = TimeOf<kScan>;
    constexpr int kTiles = size_of(Time::kPhase.x) / kTimeChannels;
    float states[kChainsEach<kScan>];
    for (int tile = static_cast<int>(blockIdx.x); tile < kTiles * args_.count;
         tile += static_cast<int>(gridDim.x)) {
      TimeTile t{layer, tile / kTiles, tile % kTiles * kTimeChannels, 0, 0};
#pragma unroll
      for (int i = 0; i < kChainsEach<kScan>; ++i) states[i] = 0.0f;
      for (; t.begin < args_.seq; t.begin += Time::kSteps) {
        t.steps = least(Time::kSteps, args_.seq - t.begin);
        __syncthreads();  // the memory of the tile before
        load_time<kScan, kAt>(t, shared);
        __syncthreads();
        find_decays<kScan>(t, shared);
        __syncthreads();
        run_chains<kScan>(t, shared, states);
        __syncthreads();
        read_out<kScan, kAt>(t, shared);
      }
    }
  }

  template <int kScan, int kAt>
  __device__ __forceinline__ void load_time(const TimeTile& t, void* shared) const {
    using Time = TimeOf<kScan>;
    constexpr Scan kPhase = Time::kPhase;
    constexpr WindowVector kB = kWindow.vectors[kPhase.b], kC = kWindow.vectors[kPhase.c];
    constexpr bool kTogether = kB.buffer == kC.buffer && kC.at == kB.at + Time::kState;
    constexpr WindowTimeLayout kTo = kTimePart<kScan>;
    for (int i = thread_; i < t.steps * (Time::kState / 2); i += kThreads) {
      const int step = i / (Time::kState / 2), at = i % (Time::kState / 2);
      const float* from = vector_row<kPhase.b>(t.layer, t.window, t.begin + step);
      if (!kTogether && at >= Time::kState / 4) {
        from = vector_row<kPhase.c>(t.layer, t.window, t.begin + step) - Time::kState;
      }
      reinterpret_cast<float4*>(kTo.bc.in(shared))[i] = reinterpret_cast<const float4*>(from)[at];
    }
    for (int i = thread_; i < t.steps * kTimeChannels; i += kThreads) {
      const int step = i / kTimeChannels, c = t.first + i % kTimeChannels, frame = t.begin + step;
      kTo.u.in(shared)[i] = vector_row<kPhase.x>(t.layer, t.window, frame)[c];
      kTo.dt.in(shared)[i] = vector_row<kPhase.dt>(t.layer, t.window, frame)[c];
      if (!has_output(t, step)) continue;
      kTo.gate.in(shared)[i] = vector_row<kPhase.z>(t.layer, t.window, frame)[c];
    }
    const auto* const a = static_cast<const float*>(args_.weights[kNetwork.input.count + kAt].weights);
    for (int i = thread_; i < Time::kStates; i += kThreads) {
      kTo.a.in(shared)[i] = __ldg(of_layer(a, t.layer) + t.first * Time::kState + i);
    }
    if constexpr (kPhase.input_dt != kNoVector) {
      for (int i = thread_; i < t.steps; i += kThreads) {
        kTo.input_dt.in(shared)[i] = vector_row<kPhase.input_dt>(t.layer, t.window, t.begin + i)[0];
      }
    }
  }

  // What each step does to each state.
  template <int kScan>
  __device__ __forceinline__ void find_decays(const TimeTile& t, void* shared) const {
    using Time = TimeOf<kScan>;
    constexpr WindowTimeLayout kIn = kTimePart<kScan>;
    const bool decays = Time::kPhase.decays_input && args_.decays_input;
#pragma unroll 4
    for (int i = thread_; i < t.steps * Time::kStates; i += kThreads) {
      const int step = i / Time::kStates, chain = i % Time::kStates;
      const int at = step * kTimeChannels + chain / Time::kState;
      const float dt = kIn.dt.in(shared)[at];
      const float input_dt = Time::kPhase.input_dt != kNoVector ? kIn.input_dt.in(shared)[step] : dt;
      const StateStep result = state_step(kIn.a.in(shared)[chain],
                                          kIn.bc.in(shared)[step * 2 * Time::kState + chain % Time::kState],
                                          dt, __fmul_rn(input_dt, kIn.u.in(shared)[at]), decays);
      kIn.decays.in(shared)[i] = result.decay;
      kIn.states.in(shared)[i] = result.input;
    }
  }

  // Replaces the inputs by the states after them.
  template <int kScan>
  __device__ __forceinline__ void run_chains(const TimeTile& t, void* shared,
                                             float (&states)[kChainsEach<kScan>]) const {
    constexpr int kStates = TimeOf<kScan>::kStates;
    constexpr WindowTimeLayout kIn = kTimePart<kScan>;
#pragma unroll
    for (int k = 0; k < kChainsEach<kScan>; ++k) {
      const int chain = thread_ + k * kThreads;
      if (chain >= kStates) continue;
      const float* decay = kIn.decays.in(shared) + chain;
      float* state = kIn.states.in(shared) + chain;
      float h = states[k];
#pragma unroll 8
      for (int step = 0; step < t.steps; ++step) {
        h = next_state(h, {decay[step * kStates], state[step * kStates]});
        state[step * kStates] = h;
      }
      states[k] = h;
    }
  }

  // The gated outputs, some lanes to a channel. Whole warps, because these exchange values.
  template <int kScan, int kAt>
  __device__ __forceinline__ void read_out(const TimeTile& t, void* shared) const {
    using Time = TimeOf<kScan>;
    constexpr WindowTimeLayout kIn = kTimePart<kScan>;
    const bool last_only = t.layer + 1 == kLayerCount;
    const int begin = last_only ? t.steps - 1 : 0;
    if (!has_output(t, begin)) return;
    const float* const d = args_.weights[kNetwork.input.count + kAt].bias;
    const int items = (t.steps - begin) * kTimeChannels * Time::kLanesEach;
    for (int i = thread_; i < round_up(items, 32); i += kThreads) {
      const int item = least(i, items - 1), lane = item % Time::kLanesEach;
      const int at = begin * kTimeChannels + item / Time::kLanesEach, step = at / kTimeChannels;
      const float* c = kIn.bc.in(shared) + step * 2 * Time::kState + Time::kState + lane * Time::kEach;
      const float* h = kIn.states.in(shared) + at * Time::kState + lane * Time::kEach;
      float part = 0.0f;
#pragma unroll
      for (int n = 0; n < Time::kEach; ++n) part = __fmaf_rn(c[n], h[n], part);
      const float sum = add_lanes<Time::kLanesEach>(part);
      if (i >= items || lane != 0) continue;
      const int channel = t.first + at % kTimeChannels;
      memory<Time::kPhase.out>(last_only ? t.window : first_row_of(t) + step)[channel] =
          gate(sum, __ldg(of_layer(d, t.layer) + channel), kIn.u.in(shared)[at], kIn.gate.in(shared)[at]);
    }
  }
};

}  // namespace policy
}  // namespace exphil
