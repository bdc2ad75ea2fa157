// A block's part of the weights and its shared memory (policy/team_layout.cuh), as constants of the compiled
// kernel. With -D: TEAM, AGENTS, STAGED.
#pragma once

#include "kernels/policy/own.cuh"
#include "kernels/policy/team_layout.cuh"

namespace exphil {
namespace policy {

constexpr TeamPlan kPlan(kNetwork);
constexpr TeamLayout kTeam(kNetwork, kPlan, TEAM);
constexpr ActivationLayout kActivations(kNetwork, kPlan, TEAM, AGENTS);
constexpr int kStagedBytes = static_cast<int>(kTeam.staged(STAGED, kNetwork.layers));

// A product in one block: its rows, and what each of them sums up.
template <int kProduct>
struct BlockProduct {
  static constexpr Product kProductOf = kNetwork.products[kProduct];
  static constexpr int kIn = kProductOf.in, kOutputs = kProductOf.outputs;
  static constexpr Split kSplit = kPlan.splits[kProduct];
  static constexpr int kRows = weight_rows(kNetwork, kPlan, TEAM, kProduct);
  static constexpr int kColumns = weight_columns(kNetwork, kPlan, TEAM, kProduct);
  static constexpr int kSegments = kColumns / kSegment, kTasks = kRows * kSegments;
  static constexpr bool kNormed = kProductOf.norm != Norm::none, kDiagonal = kProductOf.diagonal;
  static constexpr bool kCentres = kNetwork.centres(kProductOf);

  static constexpr int vector(int output) { return kProductOf.out[output].vector; }
  static constexpr bool channels(int output) { return by_channel(kPlan, vector(output)); }
  // Rows of an output in this block, and its first one.
  static constexpr int rows(int output) { return block_rows(kNetwork, kPlan, TEAM, vector(output)); }
  static constexpr int first(int output) { return block_rows(kNetwork, kPlan, TEAM, kProductOf, output); }
  // The same of the outputs that are divided by channels, one after another.
  static constexpr int channel_first(int output) {
    int first = 0;
    for (int o = 0; o < output; ++o) first += channels(o) ? rows(o) : 0;
    return first;
  }
  static constexpr int kChannelRows = channel_first(kOutputs);
};

// The arrays at the offsets of kActivations.
class Activations {
 public:
  __device__ __forceinline__ explicit Activations(void* base) : base_(base) {}

  // Floats from one agent's values to the next one's.
  template <int kVector>
  static constexpr int stride() {
    if constexpr (kPlan.places[kVector] == Place::own) return own_of(kVector);
    if constexpr (kPlan.places[kVector] == Place::heads) return values_of_heads(kNetwork, TEAM, kVector);
    if constexpr (kPlan.places[kVector] == Place::common) {
      return kNetwork.rows(kNetwork.products[kPlan.parts_of[kVector]]);
    }
    return size_of(kVector);
  }
  // Of every agent, as an array: the compiler adds up its offsets better than those of a pointer.
  template <int kVector>
  using Vector = float[AGENTS][stride<kVector>()];
  template <int kVector>
  __device__ __forceinline__ Vector<kVector>& vector() const {
    static_assert(kPlan.places[kVector] != Place::none, "a vector that is nowhere");
    return place_of<kVector>(turn_);
  }
  // Where a phase writes it: of a vector that takes turns not what is read meanwhile. After turn(), that is
  // what vector() gives.
  template <int kVector>
  __device__ __forceinline__ Vector<kVector>& next() const {
    return place_of<kVector>(1 - turn_);
  }
  // Of a layer, what a product makes of a cell's state before the frame.
  template <int kVector>
  __device__ __forceinline__ Vector<kVector>& recalled(int layer) const {
    return (&array<Vector<kVector>>(kActivations.vectors[kVector]))[layer];
  }
  __device__ __forceinline__ void turn() { turn_ = 1 - turn_; }
  template <int kVector>
  using MeanParts = float[AGENTS][segments_of(kVector)];
  template <int kVector>
  __device__ __forceinline__ MeanParts<kVector>& mean_parts() const {
    return array<MeanParts<kVector>>(kActivations.means[kVector]);
  }
  // The segment sums of a product that is divided by depth.
  template <int kProduct>
  using ProductParts = float[AGENTS][segments_of(BlockProduct<kProduct>::kIn)][BlockProduct<kProduct>::kRows];
  template <int kProduct>
  __device__ __forceinline__ ProductParts<kProduct>& product_parts() const {
    return array<ProductParts<kProduct>>(kActivations.parts_of[kProduct]);
  }
  using Residual = float[AGENTS][most(1, kActivations.residual_rows)];
  __device__ __forceinline__ Residual& residual() const { return array<Residual>(kActivations.residual); }
  __device__ __forceinline__ float* board() const { return static_cast<float*>(base_); }
  __device__ __forceinline__ float* go() const { return kActivations.go.in(base_); }
  __device__ __forceinline__ float* sums() const { return kActivations.sums.in(base_); }
  __device__ __forceinline__ float& norm_scale(int agent) const {
    return kActivations.norm_scale.in(base_)[agent];
  }
  __device__ __forceinline__ float& norm_mean(int agent) const {
    return kActivations.norm_mean.in(base_)[agent];
  }
  __device__ __forceinline__ const float*& from(int agent) const {
    return kActivations.from.in(base_)[agent];
  }
  __device__ __forceinline__ float*& to(int agent) const { return kActivations.to.in(base_)[agent]; }
  __device__ __forceinline__ unsigned long long* arrived() const { return kActivations.arrived.in(base_); }
  __device__ __forceinline__ unsigned long long* words() const { return kActivations.words.in(base_); }
  __device__ __forceinline__ float* token() const { return kActivations.token.in(base_); }

 private:
  template <int kVector>
  __device__ __forceinline__ Vector<kVector>& place_of(int turn) const {
    constexpr Part<float> kFirst = kActivations.vectors[kVector];
    if constexpr (takes_turns(kNetwork, kVector)) {
      constexpr int kOther = static_cast<int>(kActivations.other_hidden.index() - kFirst.index());
      return *reinterpret_cast<Vector<kVector>*>(kFirst.in(base_) + turn * kOther);
    }
    return array<Vector<kVector>>(kFirst);
  }
  template <class Array>
  __device__ __forceinline__ Array& array(const Part<float>& part) const {
    return *reinterpret_cast<Array*>(part.in(base_));
  }

  void* base_;
  int turn_ = 0;
};

}  // namespace policy
}  // namespace exphil
