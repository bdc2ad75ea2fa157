// The team's step as a class, shared by the phases in policy/step.cu. A Step is one thread's view of its
// block.
#pragma once

#include "kernels/policy/arguments.cuh"
#include "kernels/policy/dot.cuh"
#include "kernels/policy/held.cuh"
#include "kernels/policy/math.cuh"
#include "kernels/policy/team.cuh"

namespace exphil {
namespace policy {

constexpr int kFrameValues = values_of(kNetwork.frame), kFrameSize = size_of(kNetwork.frame);
constexpr int kAnswers = size_of(kNetwork.outs);

struct InlineObs {
  float v[kFrameValues <= kMostInlineObs ? kFrameValues : 1];
};

// The lists of phases. The weights of the input, of the output and of each layer are staged by themselves.
enum class List : int { input, layer, output };
constexpr Block list_of(List list) {
  return list == List::input ? kNetwork.input : list == List::layer ? kNetwork.layer : kNetwork.output;
}
template <List kList, int kAt>
constexpr PhaseWeights weights_of() {
  return kList == List::input   ? kTeam.input.phases[kAt]
         : kList == List::layer ? kTeam.layer.phases[kAt]
                                : kTeam.output.phases[kAt];
}

// A layer's first product, whose matrix is not staged: a lane holds its weights where they are few.
using FirstProduct = BlockProduct<kNetwork.layer.phases[0].index>;
static_assert(kNetwork.layer.phases[0].kind == Kind::product && FirstProduct::kSplit == Split::rows,
              "a layer begins with a product of a vector on the board");
constexpr int kFirstPer = divide_up(FirstProduct::kTasks, THREADS);
constexpr bool kHoldFirst = kFirstPer <= 2;  // up to 64 registers

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
        board_(act_.board(), static_cast<float*>(args.board), TeamBarrier(args.barrier)),
        rank_(rank) {}

  // Starts loading all weights of this block; the first use needs the block's sync in group().
  __device__ __forceinline__ void start() {
#if STAGED
    if (thread() == 0) {
      for (int i = 0; i < 2 + kNetwork.layers; ++i) bulk_init(act_.arrived() + i);
      bulk_publish_init();
      stage(0, kTeam.input_at, kTeam.input.bytes);
      for (int l = 0; l < kNetwork.layers; ++l) stage(2 + l, kTeam.layer_at(l), kTeam.layer.bytes);
      stage(1, kTeam.output_at, kTeam.output.bytes);
    }
#endif
    hold_first(0);
  }

  // One frame for the AGENTS agents from `first` on.
  __device__ __forceinline__ void group(int first, bool first_group, const float* inline_obs) {
    load_group(first, inline_obs);
    // No push may reach a block before it runs (a cluster) or while it reads the previous group's values.
    answer(first, !CLUSTER && first_group);
  }

  // The frame that is on the board. pushes: every block is ready for them.
  __device__ __forceinline__ void answer(int first, bool pushes) {
    Run run{nullptr, 0, 0, first, pushes};
    walk<List::input>(run);
    run.pushes = true;
#pragma unroll 1
    for (int l = 0; l < kNetwork.layers; ++l) {
      run.layer = l, run.next = l + 1 < kNetwork.layers ? l + 1 : 0;
      if (!ARMED || l > 0) load_states(l);  // await() has loaded those of the first layer
      walk<List::layer>(run);
    }
    walk<List::output>(run);
  }

  // Of a launch ahead of its observation: policy/armed.cuh.
  __device__ bool await(const ArmedArguments& armed);
  __device__ void finish_staging() const;

 private:
  // Where the walk over the lists is.
  struct Run {
    const char* w;    // the weights of the list, once they are needed
    int layer, next;  // next: the layer whose first product comes after this one's
    int first;        // agent
    bool pushes;      // every block is ready for them
  };

  // Every phase of a list, in its order.
  template <List kList>
  __device__ __forceinline__ void walk(Run& run) {
    for_each_number<0, list_of(kList).count>([&](auto at) __attribute__((always_inline)) {
      constexpr int kAt = decltype(at)::value;
      constexpr Phase kPhase = list_of(kList).phases[kAt];
      static_assert(kAt > 0 || kPhase.kind == Kind::product, "a list begins with a product");
      if constexpr (kPhase.kind == Kind::product) {
        if constexpr (kPlan.splits[kPhase.index] == Split::rows) {
          product_of_rows<kList, kAt>(run);
        } else if constexpr (kPlan.splits[kPhase.index] == Split::depth) {
          product_of_depth<kList, kAt>(run);
        } else {
          short_product<kList, kAt>(run);
        }
      } else if constexpr (kPhase.kind == Kind::scan) {
        scan<kList, kAt>(run);
      }
      // A convolution follows within its product, and a mean within the phase that reads it.
    });
  }

  // ---- a function for each kind of phase: policy/step.cu ----

  template <List kList, int kAt>
  __device__ void product_of_rows(Run& run);
  template <List kList, int kAt>
  __device__ void product_of_depth(Run& run);
  template <List kList, int kAt>
  __device__ void short_product(Run& run);
  template <List kList, int kAt>
  __device__ void scan(Run& run);
  template <int kConvolution>
  __device__ void convolve_channel(const Run& run, int agent, int c, int held, float value);

  template <class P>
  __device__ void first_sums(const Run& run);
  template <List kList, int kAt>
  __device__ void channel_rows(const Run& run);
  template <List kList, int kAt, int kOutput>
  __device__ void push_rows(const Run& run);
  template <List kList, int kAt, int kOutput>
  __device__ void answer_rows(const Run& run);
  __device__ void push_obs(const ArmedArguments& armed);

  // Where phase kAt of a layer has kind kKind and index kIndex.
  static constexpr int at_of(Kind kind, int index) {
    for (int i = 0; i < kNetwork.layer.count; ++i) {
      if (kNetwork.layer.phases[i].kind == kind && kNetwork.layer.phases[i].index == index) return i;
    }
    return -1;
  }

  // Waits for the weights of a list.
  template <List kList>
  __device__ __forceinline__ const char* section(int layer) const {
    if constexpr (kList == List::input) return section(0, kTeam.input_at);
    if constexpr (kList == List::output) return section(1, kTeam.output_at);
    return section(2 + layer, kTeam.layer_at(layer));
  }
  __device__ __forceinline__ const char* section(int arrived, long long at) const {
#if STAGED
    bulk_wait(act_.arrived() + arrived);
    return staged_ + at;
#else
    (void)arrived;
    return share_ + at;
#endif
  }

#if STAGED
  __device__ __forceinline__ void stage(int arrived, long long at, long long bytes) {
    bulk_copy(act_.arrived() + arrived, staged_ + at, share_ + at, static_cast<unsigned>(bytes));
  }
#endif

  __device__ __forceinline__ const unsigned char* first_matrix(int layer) const {
    return kTeam.first.in(share_ + kTeam.first_at(layer));
  }
  __device__ __forceinline__ void hold_first(int layer) {
    if constexpr (kHoldFirst) {
      const auto* w = reinterpret_cast<const Group*>(first_matrix(layer));
#pragma unroll
      for (int i = 0; i < kFirstPer; ++i) {
        const int task = thread() + i * THREADS;
#pragma unroll
        for (int j = 0; j < kSegment / 4; ++j) {
          if (task < FirstProduct::kTasks) held_[i][j] = __ldg(w + j * FirstProduct::kTasks + task);
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
      act_.from(thread()) = place.from;
      act_.to(thread()) = place.to;
    }
  }

  __device__ __forceinline__ void load_group(int first, const float* inline_obs) {
    load_places(first);
    // Reads through an address that the compiler cannot trace to the parameter bank: indexed reads of that
    // bank are one word at a time for the entire warp.
    const float* from_parameters = launder(inline_obs);
    for (int i = thread(); i < AGENTS * kFrameSize; i += THREADS) {
      const int agent = first + i / kFrameSize, k = i % kFrameSize;
      float value = 0.0f;
      if (args_.obs == nullptr) {
        if (agent == 0 && k < kFrameValues) value = from_parameters[k];
      } else if (agent < args_.count) {
        value = __ldcs(args_.obs + static_cast<long long>(agent) * kFrameSize + k);
      }
      (&act_.vector<kNetwork.frame>()[0][0])[i] = value;
    }
    __syncthreads();
  }

  // ---- states ----

  // The address in an agent's state for channel c of this block's part of a vector, with kEach floats a
  // channel, of which the first `skipped` are not meant; null where there is no such agent or channel.
  template <int kVector, int kEach, class T>
  __device__ __forceinline__ T* channel_state(T* state, int layer, int at, int c, int skipped = 0) const {
    const int channel = rank_ * own_of(kVector) + c;
    return state == nullptr || channel >= size_of(kVector)
               ? nullptr
               : state + layer * kNetwork.layer_floats + at + channel * kEach + skipped;
  }
  template <class Items, class T>
  __device__ __forceinline__ T* scan_state(T* state, int layer, int c, int lane) const {
    return channel_state<Items::kOf.x, Items::kSplit.size()>(state, layer, Items::kOf.state_at, c,
                                                             lane * Items::kEach);
  }

  // Prefetches the layer's recurrent state into registers.
  __device__ __forceinline__ void load_states(int layer) {
    for_each_number<0, kNetwork.layer.count>([&](auto at) __attribute__((always_inline)) {
      constexpr int kAt = decltype(at)::value;
      load_states_of(static_cast<HeldLayer<kAt>&>(held_states_).states, layer);
    });
  }
  template <Kind kKind, int kIndex>
  __device__ __forceinline__ void load_states_of(HeldStates<kKind, kIndex>&, int) {}
  template <int kIndex>
  __device__ __forceinline__ void load_states_of(HeldStates<Kind::convolution, kIndex>& to, int layer) {
    using Items = ConvolutionItems<kIndex>;
    if constexpr (Items::kHeld && Items::kHistory > 0) {
#pragma unroll
      for (int k = 0; k < Items::kPer; ++k) {
        const int item = thread() + k * THREADS, c = item % Items::kRows - Items::kFirst;
        if (item >= Items::kItems || c < 0 || c >= Items::kOwn) continue;
        const float* from =
            channel_state<Items::kOf.in, 1>(act_.from(item / Items::kRows), layer, Items::kOf.state_at, c);
#pragma unroll
        for (int t = 0; t < Items::kHistory; ++t) {
          to.values[k][t] = from == nullptr ? 0.0f : from[t * size_of(Items::kOf.in)];
        }
      }
    }
  }
  template <int kIndex>
  __device__ __forceinline__ void load_states_of(HeldStates<Kind::scan, kIndex>& to, int layer) {
    using Items = ScanItems<kIndex>;
    if constexpr (Items::kHeld) {
#pragma unroll
      for (int k = 0; k < Items::kPer; ++k) {
        const int item = thread() + k * THREADS;
        if (item >= Items::kItems) continue;
        const float* from = scan_state<Items>(act_.from(item / (Items::kOwn * Items::kLanesOf)), layer,
                                              item / Items::kLanesOf % Items::kOwn, item % Items::kLanesOf);
#pragma unroll
        for (int n = 0; n < Items::kEach; n += 4) {
          const float4 value =
              from == nullptr ? make_float4(0, 0, 0, 0) : *reinterpret_cast<const float4*>(from + n);
          to.values[k][n] = value.x, to.values[k][n + 1] = value.y;
          to.values[k][n + 2] = value.z, to.values[k][n + 3] = value.w;
        }
      }
    }
  }

  // ---- values ----

  // The norm's factors of what a product reads for each agent, one warp per agent.
  template <class P>
  __device__ __forceinline__ void norm_scales() {
    for (int a = thread() / 32; a < AGENTS; a += THREADS / 32) {
      const NormFactors norm = norm_factors_of<P::kProductOf.norm, values_of(P::kIn), size_of(P::kIn)>(
          act_.vector<P::kIn>()[a], __uint_as_float(P::kProductOf.epsilon));
      if (thread() % 32 != 0) continue;
      act_.norm_scale(a) = norm.scale;
      if constexpr (P::kCentres) act_.norm_mean(a) = norm.mean;
    }
  }

  template <class P>
  __device__ __forceinline__ float row_sum(int agent, int row) const {
    return add_segments<P::kSegments>(act_.sums() + agent * P::kTasks + row, P::kRows);
  }

  // A row's value, with its bias, from the sum over its stored weights.
  template <class P, List kList, int kAt>
  __device__ __forceinline__ float row_value(float sum, int agent, const char* w, int row) const {
    constexpr PhaseWeights kWeights = weights_of<kList, kAt>();
    if constexpr (P::kNormed) {
      const float mean = P::kCentres ? act_.norm_mean(agent) : 0.0f;
      sum = centred<P::kCentres>(sum, kWeights.rows.scale.in(w), kWeights.rows.sums.in(w), row, mean);
      return __fmaf_rn(sum, act_.norm_scale(agent), kWeights.rows.bias.in(w)[row]);
    }
    sum = scaled(sum, kWeights.rows.scale.in(w), row);
    return kWeights.rows.bias.count == 0 ? sum : __fadd_rn(sum, kWeights.rows.bias.in(w)[row]);
  }

  // Keeps a value of this block's channel c, and pushes the sum of its segment where a mean needs that. A
  // warp has whole segments.
  template <int kVector>
  __device__ __forceinline__ void keep(int agent, int c, float value) const {
    static_assert(kPlan.places[kVector] == Place::own, "not divided by channels");
    act_.vector<kVector>()[agent][c] = value;
    if constexpr (kPlan.has_mean[kVector]) {
      const int channel = rank_ * own_of(kVector) + c;
      const float part = segment_sum<values_of(kVector)>(value, channel);
      if (channel < size_of(kVector)) {
        board_.push(&act_.mean_parts<kVector>()[agent][channel / kSegment], part, c % kSegment, kSegment);
      }
    }
  }
  // After it, every thread of the block may read what keep() was given.
  template <int kVector>
  __device__ __forceinline__ void kept() const {
    if constexpr (kPlan.has_mean[kVector]) {
      board_.exchange(act_.mean_parts<kVector>()[0], AGENTS * segments_of(kVector));
    } else {
      __syncthreads();
    }
  }

  __device__ __forceinline__ void store(int agent, int output, float value) const {
    const long long index = static_cast<long long>(agent) * kAnswers + output;
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
  Group held_[kHoldFirst ? kFirstPer : 1][kSegment / 4];
  HeldLayer<0> held_states_;
};

}  // namespace policy
}  // namespace exphil
