// The team's step as a class, shared by the phases in policy/step.cu. A Step is one thread's view of its
// block.
#pragma once

#include "kernels/policy/arguments.cuh"
#include "kernels/policy/heads.cuh"
#include "kernels/policy/held.cuh"
#include "kernels/policy/segment_sums.cuh"
#include "kernels/policy/step_lists.cuh"
#include "kernels/policy/team.cuh"

namespace exphil {
namespace policy {

constexpr int kFrameValues = values_of(kNetwork.frame), kFrameSize = size_of(kNetwork.frame);
constexpr int kAnswers = size_of(kNetwork.outs);

struct InlineObs {
  float v[kFrameValues <= kMostInlineObs ? kFrameValues : 1];
};

class Step {
 public:
  __device__ __forceinline__ Step(const StepArguments& args, char* shared, int rank)
      : args_(args),
        act_(shared + kStagedBytes),
        staged_(shared),
        share_(static_cast<const char*>(args.weights) + rank * kTeam.bytes),
        board_(act_.board(), static_cast<float*>(args.board), args.barrier, act_.words(), act_.token()),
        rank_(rank),
        answers_{launder(args.out), launder(args.tagged),
                 static_cast<unsigned>(launder(static_cast<int>(args.sequence))), launder(args.count)} {}

  // Opens the board, and starts copying the staged weights of this block. The block synchronises before the
  // first of them is awaited.
  __device__ void start();

  // One frame for the AGENTS agents from `first` on.
  __device__ __forceinline__ void group(int first, bool first_group, bool last_group,
                                        const float* inline_obs) {
    if (!first_group) board_.open_again();
    load_group(first, first_group, inline_obs);
    // No push may reach a block before it runs (a cluster) or while it reads the previous group's values.
    answer(first, !CLUSTER && first_group, last_group);
  }

  // The frame that is on the board, of the agents from `first` on. pushes: every block is ready for them.
  // What needs the states alone is there, and the states of the first layer are under way.
  __device__ __forceinline__ void answer(int first, bool pushes, bool last) {
    Run run{nullptr, 0, -1, first, pushes};
    walk<List::input>(run);
#pragma unroll 1
    for (int l = 0; l < kNetwork.layers; ++l) {
      run.layer = l;
      run.next = l + 1 < kNetwork.layers ? l + 1 : last ? -1 : 0;
      if (l > 0) load_states(l);
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
    const char* w;  // the weights of the list, once they are needed
    int layer;
    int next;     // the layer whose first product comes after this one's; -1: none
    int first;    // agent
    bool pushes;  // every block is ready for them
  };

  // Every phase of a list, in its order.
  template <List kList>
  __device__ __forceinline__ void walk(Run& run) {
    for_each_number<0, list_of(kList).count>([&](auto at) __attribute__((always_inline)) {
      constexpr int kAt = decltype(at)::value;
      constexpr Phase kPhase = list_of(kList).phases[kAt];
      static_assert(kAt > 0 || kPhase.kind == Kind::product, "a list begins with a product");
      if constexpr (is_early(kList, kAt)) {
        // early_products() has it.
      } else if constexpr (kPhase.kind == Kind::product) {
        if constexpr (kPlan.splits[kPhase.index] == Split::rows) {
          product_of_rows<kList, kAt>(run);
        } else if constexpr (kPlan.splits[kPhase.index] == Split::depth) {
          product_of_depth<kList, kAt>(run);
        } else {
          short_product<kList, kAt>(run);
        }
      } else if constexpr (kPhase.kind == Kind::scan) {
        scan<kList, kAt>(run);
      } else if constexpr (kPhase.kind == Kind::cell) {
        cell<kList, kAt>(run);
      } else if constexpr (kPhase.kind == Kind::heads) {
        heads<kList, kAt>(run);
      } else if constexpr (kPhase.kind == Kind::gate) {
        gate_of_board<kList, kAt>(run);
      } else if constexpr (kPhase.kind == Kind::angle) {
        angle<kList, kAt>(run);
      } else if constexpr (kPhase.kind == Kind::rotation) {
        rotation<kList, kAt>(run);
      } else if constexpr (kPhase.kind == Kind::delay) {
        delay<kList, kAt>(run);
      }
      // A convolution follows within its product, and a mean within the phase that reads it.
    });
  }

  // ---- a function for each kind of phase: policy/step_products.cuh, step_heads.cuh, step_rotations.cuh,
  // step.cu ----

  template <List kList, int kAt>
  __device__ void product_of_rows(Run& run);
  template <List kList, int kAt>
  __device__ void product_of_depth(Run& run);
  template <List kList, int kAt>
  __device__ void short_product(Run& run);
  template <List kList, int kAt>
  __device__ void scan(Run& run);
  template <List kList, int kAt>
  __device__ void cell(Run& run);
  template <List kList, int kAt>
  __device__ void heads(Run& run);
  template <List kList, int kAt>
  __device__ void gate_of_board(Run& run);
  template <int kIndex>
  __device__ typename HeadRows<kIndex>::Frame head_frame(int agent, int c, int lane) const;
  template <List kList, int kAt>
  __device__ void angle(Run& run);
  template <List kList, int kAt>
  __device__ void rotation(Run& run);
  template <List kList, int kAt>
  __device__ void delay(Run& run);
  __device__ void early_products(int layer, int end);
  template <int kIndex>
  __device__ float recalled_value(int layer, int item) const;
  __device__ void recall(int layer);
  template <int kIndex>
  __device__ void recall(const HeldStates<Kind::cell, kIndex>& held, int layer);
  template <Kind kKind, int kIndex>
  __device__ void recall(const HeldStates<kKind, kIndex>&, int) {}
  template <int kScan>
  __device__ float input_dt(int agent, float dt) const;
  template <int kConvolution>
  __device__ void convolve_channel(const Run& run, int agent, int c, int held, float value);

  template <class P>
  __device__ void norm_scales(bool first_layer);
  template <class P>
  __device__ float row_sum(int agent, int row) const;
  template <class P, List kList, int kAt>
  __device__ float row_value(float sum, int agent, const char* w, int row) const;
  template <class P, List kList, int kAt>
  __device__ float block_row(const Run& run, int agent, int row) const;
  template <class P>
  __device__ void first_sums(const Run& run);
  template <List kList, int kAt>
  __device__ void sums_of_rows(Run& run);
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

  // ---- staged weights: policy/step_weights.cuh ----

  template <List kList>
  __device__ const char* section(int layer) const;
  __device__ const char* section(int arrived, long long at) const;
  __device__ const void* staged_first(int layer) const;
#if STAGED
  __device__ void stage(int arrived, long long to, long long from, long long bytes);
#endif
  __device__ __forceinline__ const unsigned char* first_matrix(int layer) const {
    return kTeam.first.in(share_ + kTeam.first_at(layer));
  }
  __device__ void hold_first(int layer);

  // Both of a group of agents.
  __device__ void load_places(int first);
  __device__ float frame_value(int first, const float* parameters, int i) const;
  __device__ void load_group(int first, bool first_group, const float* inline_obs);

  // ---- states ----

  // Where those of an agent are read and written; null where there is no such agent.
  __device__ __forceinline__ const float* from_place(int agent) const {
    return AGENTS == 1 ? place_.from : act_.from(agent);
  }
  __device__ __forceinline__ float* to_place(int agent) const {
    return AGENTS == 1 ? place_.to : act_.to(agent);
  }

  // Whether an agent has a state for channel c of this block's part of a vector. state: null where there is
  // no such agent.
  template <int kVector>
  __device__ __forceinline__ bool has_state(const float* state, int c) const {
    return state != nullptr && has_channel<kVector>(rank_ * own_of(kVector) + c);
  }
  // Where it is in the agent's state, with kEach floats a channel, of which the first `skipped` are not
  // meant.
  template <int kVector, int kEach>
  __device__ __forceinline__ int state_at(int layer, int at, int c, int skipped = 0) const {
    return layer * kNetwork.layer_floats + at + (rank_ * own_of(kVector) + c) * kEach + skipped;
  }
  template <class Items>
  __device__ __forceinline__ int scan_at(int layer, int c, int lane) const {
    return state_at<Items::kOf.x, Items::kSplit.size()>(layer, Items::kOf.state_at, c, lane * Items::kEach);
  }

  template <class Items>
  __device__ __forceinline__ int head_state_at(int layer, int c, int lane) const {
    return state_at<Items::kOf.value, Items::kStates>(layer, Items::kOf.state_at, c, lane * Items::kEach);
  }

  // ---- heads whose keys are rotated: policy/step_rotations.cuh ----

  __device__ __forceinline__ int block_first_head() const {
    return least(rank_ * own_of(kHeadsOf), values_of(kHeadsOf) - 1) / kHeadChannels;
  }
  // Of the heads of this block, number i; the last head where there are fewer.
  __device__ __forceinline__ int block_head(int i) const {
    return least(block_first_head() + i, kHeads - 1);
  }
  __device__ bool owns_head(int i) const;
  template <int kIndex>
  __device__ int angle_at(int layer, int item) const;
  template <int kIndex>
  __device__ int delay_at(int layer, int item) const;
  template <int kIndex>
  __device__ bool owns_delayed(int item) const;

  // Prefetch a layer's recurrent state into registers: policy/step_states.cuh.
  __device__ void load_states(int layer);
  template <Kind kKind, int kIndex>
  __device__ void load_states_of(HeldStates<kKind, kIndex>& to, int layer);
  template <int kIndex>
  __device__ void load_states_of(HeldStates<Kind::convolution, kIndex>& to, int layer);
  template <int kIndex>
  __device__ void load_states_of(HeldStates<Kind::scan, kIndex>& to, int layer);
  template <int kIndex>
  __device__ void load_states_of(HeldStates<Kind::cell, kIndex>& to, int layer);
  template <int kIndex>
  __device__ void load_states_of(HeldStates<Kind::heads, kIndex>& to, int layer);
  template <int kIndex>
  __device__ void load_states_of(HeldStates<Kind::angle, kIndex>& to, int layer);
  template <int kIndex>
  __device__ void load_states_of(HeldStates<Kind::delay, kIndex>& to, int layer);
  __device__ void load_recalled(int layer);
  template <int kIndex>
  __device__ void load_recalled_of(HeldStates<Kind::cell, kIndex>& to, int layer);
  template <Kind kKind, int kIndex>
  __device__ void load_recalled_of(HeldStates<kKind, kIndex>&, int) {}

  // ---- values: policy/step_values.cuh ----

  template <int kVector>
  __device__ void keep(int agent, int c, float value, int sharer = 0, int sharers = 1) const;
  template <int kVector>
  static constexpr int pushed_by();
  template <class P>
  static constexpr int pushed_by_outputs();
  template <int kVector>
  __device__ void copy_pushed() const;
  template <int kVector>
  __device__ void kept();
  __device__ void store(int agent, int output, float value) const;

  const StepArguments& args_;
  Activations act_;
  char* staged_;
  const char* share_;
  Board board_;
  int rank_;
  StatePlace place_{nullptr, nullptr};  // of one agent

  // Of the launch's arguments, where its answers go, read at the beginning: an argument that is read when
  // another launch begins, as a launch ahead does meanwhile, takes a microsecond.
  struct Answers {
    float* out;
    unsigned long long* tagged;
    unsigned sequence;
    int count;
  };
  const Answers answers_;
  Group held_[kHoldFirst ? kFirstPer : 1][kSegment / 4];
  HeldLayer<0> held_states_;
};

}  // namespace policy
}  // namespace exphil
