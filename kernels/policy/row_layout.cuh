// Where the kernels over many rows keep a policy's vectors, which phases share a launch, and the shapes of
// the launches. Everything is constexpr over a Network, for the kernels and for c_src/cuda/policy/rows.cpp.
#pragma once

#include "kernels/policy/layout.cuh"

namespace exphil {
namespace policy {

// A vector of every row: columns [at, at + size) of an array {rows, stride}. All outputs of one product share
// an array, which belongs to the first of them.
struct RowPlace {
  int owner, stride, at;
};
constexpr RowPlace row_place(const Network& n, int vector) {
  for (int p = 0; p < kMostPhases; ++p) {
    const Product& product = n.products[p];
    for (int i = 0; i < product.outputs; ++i) {
      if (product.out[i].vector != vector) continue;
      return {product.out[0].vector, n.rows(product), first_row(n, product, i)};
    }
  }
  for (const GatedCell& cell : n.cells) {  // with all of the cell's states
    if (cell.before != vector) continue;
    return {vector, formulas::states_of(cell.cell) * n.size(vector), 0};
  }
  return {vector, n.size(vector), 0};
}

constexpr int kNoPhase = -1;

constexpr int fused_product(const Network& n, const Block& block, Kind kind, int index) {
  for (int i = 1; i < block.count; ++i) {
    const Phase phase = block.phases[i], before = block.phases[i - 1];
    if (phase.kind != kind || phase.index != index || before.kind != Kind::product) continue;
    const Product& product = n.products[before.index];
    const int read = kind == Kind::mean   ? n.means[index].in
                     : kind == Kind::scan ? n.scans[index].dt
                                          : kNoVector;
    if (product.is_short && product.outputs == 1 && product.out[0].vector == read) return before.index;
  }
  return kNoPhase;
}
// The short product before a mean or a scan that is computed in its launch: the one of its input or its dt. A
// mean's launch writes the product's output, a scan's does not.
constexpr int fused_product(const Network& n, Kind kind, int index) {
  return most(fused_product(n, n.input, kind, index),
              most(fused_product(n, n.layer, kind, index), fused_product(n, n.output, kind, index)));
}
// The phase whose launch computes a short product; its index is kNoPhase where there is none.
constexpr Phase fused_into(const Network& n, int product) {
  for (int i = 0; i < kMostPhases; ++i) {
    if (fused_product(n, Kind::mean, i) == product) return {Kind::mean, i};
    if (fused_product(n, Kind::scan, i) == product) return {Kind::scan, i};
  }
  return {Kind::product, kNoPhase};
}

// The convolution of a scan's input: the scan's launch over time updates its history, after all steps have
// read it.
constexpr int kept_convolution(const Network& n, int scan) {
  for (int i = 0; i < kMostPhases; ++i) {
    const int out = n.convolutions[i].out;
    if (out != kNoVector && out == n.scans[scan].x) return i;
  }
  return kNoPhase;
}
// Otherwise it is updated by a launch of its own.
constexpr bool kept_by_scan(const Network& n, int convolution) {
  for (int i = 0; i < kMostPhases; ++i) {
    if (kept_convolution(n, i) == convolution) return true;
  }
  return false;
}

// Convolutions that share a launch: they follow one another and read outputs of one product. `first` is
// kNoPhase where the block does not have the convolution.
struct Joined {
  int first, count;
};
constexpr bool joins(const Network& n, int before, int convolution) {
  const Convolution &one = n.convolutions[before], &next = n.convolutions[convolution];
  return convolution == before + 1 && one.taps == next.taps &&
         row_place(n, one.in).owner == row_place(n, next.in).owner && !kept_by_scan(n, before) &&
         !kept_by_scan(n, convolution);
}
constexpr Joined joined_convolutions(const Network& n, const Block& block, int convolution) {
  Joined run{kNoPhase, 0};
  bool found = false;
  for (int i = 0; i < block.count; ++i) {
    const Phase phase = block.phases[i];
    const bool goes_on = phase.kind == Kind::convolution && run.count > 0 && run.count < kMostJoined &&
                         joins(n, run.first + run.count - 1, phase.index);
    if (!goes_on && found) return run;
    if (!goes_on) run = {phase.index, phase.kind == Kind::convolution ? 1 : 0};
    if (goes_on) ++run.count;
    found = found || (phase.kind == Kind::convolution && phase.index == convolution);
  }
  return found ? run : Joined{kNoPhase, 0};
}
constexpr Joined joined_convolutions(const Network& n, int convolution) {
  const Joined of_input = joined_convolutions(n, n.input, convolution);
  if (of_input.first != kNoPhase) return of_input;
  const Joined of_layer = joined_convolutions(n, n.layer, convolution);
  return of_layer.first != kNoPhase ? of_layer : joined_convolutions(n, n.output, convolution);
}

// Where the outputs of the last frames alone are wanted: the phase of the last layer from which on the other
// rows are left out. That is its last scan or recurrence over heads, where only products and gates follow;
// otherwise none, because rows of earlier frames feed a state.
constexpr int first_of_last_rows(const Block& layer) {
  int last = layer.count;
  while (last > 0 &&
         (layer.phases[last - 1].kind == Kind::product || layer.phases[last - 1].kind == Kind::gate))
    --last;
  const Kind kind = last > 0 ? layer.phases[last - 1].kind : Kind::product;
  return kind == Kind::scan || kind == Kind::heads ? last - 1 : layer.count;
}

// Values of a norm that a product behind it needs for each row of X: the scale, and the mean.
constexpr int norm_values(const Network& n) {
  for (int p = 0; p < kMostPhases; ++p) {
    if (n.centres(n.products[p])) return 2;
  }
  return 1;
}

// ---- shapes of launches ----

constexpr int kRowThreads = 256;                    // of the kernels with a thread per element
constexpr int kScaledRows = kRowThreads / 32;       // of a block of policy_row_scales: a warp per row
constexpr int kHeadThreads = 128, kHeadsAhead = 4;  // of policy_heads_time
constexpr int kMeanRows = 4;                        // of a block of policy_mean
// Frames that policy_heads_time loads ahead: fewer where each has several keys.
constexpr int frames_ahead(const Heads& heads) {
  return most(1, kHeadsAhead / heads.ranks);
}
// Threads of a block of policy_heads_batch, and rows of a head that each loads ahead: a frame of the
// trapezoidal rule gives more values.
constexpr int head_batch_threads(const Heads& heads) {
  return heads.trapezoid() ? 128 : 256;
}
constexpr int heads_ahead(const Heads& heads) {
  return heads.trapezoid() ? 4 : 2;
}
// Channels and threads of a block of policy_advance_*, whose states have so many lanes: at most 32 channels,
// which divide every padded size.
constexpr int advance_channels(int lanes) {
  return least(32, 128 / lanes);
}
constexpr int advance_threads(int lanes) {
  return advance_channels(lanes) * lanes;
}

}  // namespace policy
}  // namespace exphil
