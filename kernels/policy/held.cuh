// What a thread of policy_step reads of a state before it needs it: the states of each phase of a layer, in
// registers where they are few. Which phases hold anything follows from the list.
#pragma once

#include "kernels/policy/activations.cuh"
#include "kernels/policy/heads.cuh"

namespace exphil {
namespace policy {

constexpr int kMostHeld = 16;  // registers for a phase's states

// The product that hands its output on to a convolution, and which output that is.
struct Source {
  int product = -1, output = 0;
};
constexpr Source source_of(int vector) {
  for (int p = 0; p < kMostPhases; ++p) {
    for (int o = 0; o < kNetwork.products[p].outputs; ++o) {
      if (kNetwork.products[p].out[o].vector == vector) return {p, o};
    }
  }
  return {};
}

// A convolution's items are those of the product before it: the channels of all of its divided outputs.
template <int kConvolution>
struct ConvolutionItems {
  static constexpr Convolution kOf = kNetwork.convolutions[kConvolution];
  static constexpr Source kSource = source_of(kOf.in);
  using P = BlockProduct<kSource.product>;
  static_assert(kPlan.convolution_of[kOf.in] == kConvolution && P::kSplit == Split::rows,
                "a convolution alone reads what a product writes");
  static constexpr int kOwn = own_of(kOf.in), kHistory = kOf.taps - 1;
  static constexpr int kRows = P::kChannelRows, kFirst = P::channel_first(kSource.output);
  static constexpr int kItems = AGENTS * kRows, kPer = divide_up(kItems, THREADS);
  static constexpr bool kHeld = kPer * kHistory <= kMostHeld;
};

// A scan's items are the lanes of its channels.
template <int kScan>
struct ScanItems {
  static constexpr Scan kOf = kNetwork.scans[kScan];
  static constexpr Lanes kSplit = Lanes(values_of(kOf.b));
  static constexpr int kOwn = own_of(kOf.x), kLanesOf = kSplit.lanes, kEach = kSplit.each;
  static constexpr int kItems = AGENTS * kOwn * kLanesOf, kPer = divide_up(kItems, THREADS);
  static constexpr bool kHeld = kPer * kEach <= kMostHeld;
};

// A cell's items are its units, each as often as threads share the pushes of its output; and the values of
// every unit's state before the frame.
template <int kCell>
struct CellItems {
  static constexpr GatedCell kOf = kNetwork.cells[kCell];
  static constexpr int kStates = formulas::states_of(kOf.cell), kUnits = size_of(kOf.x[0]);
  static constexpr int kOwn = own_of(kOf.x[0]);
  // What is added to is read before anything is pushed: by the thread that pushes it.
  static constexpr int kSharers = kOf.adds ? 1 : least(TEAM, power_of_two_within(THREADS / (AGENTS * kOwn)));
  static constexpr int kItems = AGENTS * kOwn * kSharers, kPer = divide_up(kItems, THREADS);
  static constexpr bool kHeld = kPer * kStates <= kMostHeld;
  static constexpr bool kRecalls = kOf.before != kNoVector;
  static constexpr int kRecalled = kRecalls ? AGENTS * kUnits : 0, kRecallPer = divide_up(kRecalled, THREADS);
  static constexpr bool kRecallHeld = kRecallPer <= kMostHeld;
};

// The items of a recurrence over heads are the lanes of its channels.
template <int kHeads>
struct HeadItems : HeadRows<kHeads> {
  using Rows = HeadRows<kHeads>;
  static constexpr int kOwn = own_of(Rows::kOf.value), kItems = AGENTS * kOwn * Rows::kLanesOf;
  static constexpr int kPer = divide_up(kItems, THREADS);
  static constexpr bool kHeld = kPer * Rows::kEach <= kMostHeld;
};

// The items of a cumulative angle are the angles of the block's heads; those of a delay the values that the
// block has. A vector of heads is {ranks, heads, values of a head}.
constexpr int kBlockHeads = heads_of_block(kNetwork, TEAM), kHeads = kNetwork.heads[0].heads;
constexpr int kHeadsOf = most(kNetwork.heads[0].value, 0);  // the heads' value
constexpr int kHeadChannels = values_of(kHeadsOf) / kHeads;
template <int kAngle>
struct AngleItems {
  static constexpr Angle kOf = kNetwork.angles[kAngle];
  static constexpr int kAngles = values_of(kOf.rate);
  static constexpr int kItems = AGENTS * kBlockHeads * kAngles, kPer = divide_up(kItems, THREADS);
  static constexpr bool kHeld = kPer <= kMostHeld;
};
template <int kDelay>
struct DelayItems {
  static constexpr Delay kOf = kNetwork.delays[kDelay];
  static constexpr bool kOfHeads = kPlan.places[kOf.out] == Place::heads;
  static constexpr int kKeys = keys_of(kNetwork, kNetwork.heads[0]);
  static constexpr int kOwn = Activations::stride<kOf.out>();
  static constexpr int kItems = AGENTS * kOwn, kPer = divide_up(kItems, THREADS);
  static constexpr bool kHeld = kPer <= kMostHeld;
};

// The states of phase kAt of a layer that a thread holds.
template <Kind kKind, int kIndex>
struct HeldStates {};
template <int kIndex>
struct HeldStates<Kind::convolution, kIndex> {
  using Items = ConvolutionItems<kIndex>;
  float values[Items::kHeld ? Items::kPer : 1][Items::kHistory > 0 ? Items::kHistory : 1];
};
template <int kIndex>
struct HeldStates<Kind::scan, kIndex> {
  using Items = ScanItems<kIndex>;
  float values[Items::kHeld ? Items::kPer : 1][Items::kEach];
};

template <int kIndex>
struct HeldStates<Kind::cell, kIndex> {
  using Items = CellItems<kIndex>;
  float values[Items::kHeld ? Items::kPer : 1][Items::kStates];
  float recalled[Items::kRecallHeld && Items::kRecalls ? Items::kRecallPer : 1];
};

template <int kIndex>
struct HeldStates<Kind::heads, kIndex> {
  using Items = HeadItems<kIndex>;
  float values[Items::kHeld ? Items::kPer : 1][Items::kEach];
};

template <int kIndex>
struct HeldStates<Kind::angle, kIndex> {
  using Items = AngleItems<kIndex>;
  float values[Items::kHeld ? Items::kPer : 1];
};
template <int kIndex>
struct HeldStates<Kind::delay, kIndex> {
  using Items = DelayItems<kIndex>;
  float values[Items::kHeld ? Items::kPer : 1];
};

// Those of all phases from kAt on.
template <int kAt>
struct HeldLayer : HeldLayer<kAt + 1> {
  HeldStates<kNetwork.layer.phases[kAt].kind, kNetwork.layer.phases[kAt].index> states;
};
template <>
struct HeldLayer<kNetwork.layer.count> {};

}  // namespace policy
}  // namespace exphil
