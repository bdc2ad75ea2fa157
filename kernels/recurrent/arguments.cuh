// The arguments of the kernels that walk gated recurrences over whole sequences, and back
// (recurrent/walk.cu, walk_back.cu, units.cu), and their shared memory. Compiled by the host compiler
// (c_src/cuda/recurrent/walk.cpp launches the kernels) and by NVRTC. They know no policy: all addresses are
// device memory, f32, and strides are in floats. Cells and the order of their gates: common/cells.cuh.
#pragma once

#include "kernels/common/cells.cuh"

namespace exphil {
namespace recurrent {

// Row i begins at `at + i row`; null: there is none. `row` may be 0. The rows of frames are those of sequence
// 0, then of sequence 1, ...; those of states have one row for each sequence.
struct Rows {
  float* at;
  long long row;
};
struct ConstRows {
  const float* at;
  long long row;
};

constexpr int kMostStates = 2;

// U(g, unit, k) at u[g] + unit u_unit + k u_k is what value k of the state adds to the sum of gate g.
struct RecurrentWeights {
  const float* u[formulas::kMaxGates];
  long long u_unit, u_k;
};

// From the first frame to the last.
struct WalkArguments {
  RecurrentWeights weights;                // of recurrent cells only
  const float* bias[formulas::kMaxGates];  // {units} of the recurrent sums; null: zeros
  ConstRows x[formulas::kMaxGates];        // frames' sums from the input, with its bias
  ConstRows initial[kMostStates];          // states; null: zeros
  Rows out;                                // frames: what the cell tells the phases after it
  Rows final[kMostStates];                 // states; null: not wanted
  // What the walk back needs; null: not wanted. Frames.
  Rows h[formulas::kMaxGates];  // sums from the state, with their bias
  Rows before[kMostStates];     // states before the frame
  long long sequences, seq;
  int units;
};

// From the last frame to the first.
struct WalkBackArguments {
  RecurrentWeights weights;
  ConstRows x[formulas::kMaxGates], h[formulas::kMaxGates];  // as the walk read and left them
  ConstRows before[kMostStates];
  ConstRows d_out;                 // null: zeros
  ConstRows d_final[kMostStates];  // null: zeros
  Rows d_x[formulas::kMaxGates];
  Rows d_h[formulas::kMaxGates];  // null: not wanted
  Rows d_initial[kMostStates];    // null: not wanted
  long long sequences, seq;
  int units;
};

// ---- walk.cu and walk_back.cu: a team of TEAM blocks walks ROWS sequences; each block owns some units ----

// Threads that share a sum, and the sums that they share: of the gates of kWalkUnits units forward, of
// kBackOuts values of the state backward. What a thread reads from shared memory serves all of its sums: with
// fewer, that is what the walks wait for.
constexpr int kWalkSlices = 16, kWalkUnits = 2, kBackSlices = 4, kBackOuts = 4;
// Backward, where a block has more weights than its shared memory holds, and reads them from the L2.
constexpr int kFewBackOuts = 2, kMostHeldWeights = 56 * 1024;

constexpr int divide_up(int value, int by) {
  return (value + by - 1) / by;
}
constexpr int units_of_block(int units, int team) {
  return divide_up(units, team);
}

// The products of a frame by a block's part of U: a thread takes `outs` sums over one of the slices of the
// depth, quads of which are dealt to the slices in turn.
struct ProductShape {
  int groups;  // of as many outs, each of `slices` threads
  int depth;   // padded to whole quads of all slices
  int slices, outs;
  constexpr int quads() const { return depth / (4 * slices); }
  constexpr int passes(int threads) const { return divide_up(groups, threads / slices); }
  // Floats of the weights that a thread uses.
  constexpr int weights(int threads) const { return passes(threads) * outs * quads() * 4; }
};
constexpr ProductShape walk_product(formulas::Cell cell, int units, int team) {
  return {divide_up(units_of_block(units, team), kWalkUnits),
          divide_up(units, 4 * kWalkSlices) * 4 * kWalkSlices, kWalkSlices,
          kWalkUnits * formulas::gates_of(cell)};
}
constexpr ProductShape back_product(formulas::Cell cell, int units, int team) {
  const int own = formulas::gates_of(cell) * units_of_block(units, team);
  const int outs = own * units > kMostHeldWeights ? kFewBackOuts : kBackOuts;
  return {divide_up(units, outs), divide_up(own, 4 * kBackSlices) * 4 * kBackSlices, kBackSlices, outs};
}

constexpr int kMailFloats = 4;  // of a block's shared memory, for recurrent/team.cuh

// From the sums of a unit, of all rows and gates, to those of the next: odd, so that the threads of a warp
// use different banks.
constexpr int sums_stride(formulas::Cell cell, int rows) {
  return rows * formulas::gates_of(cell) | 1;
}
// Floats of a block's shared memory but for weights: two states of all units, and the sums of its own units.
// Weights behind them are float4s.
constexpr long long walk_floats(formulas::Cell cell, int units, int team, int rows) {
  const int sums = units_of_block(units, team) * sums_stride(cell, rows);
  return kMailFloats + static_cast<long long>(rows) * 2 * walk_product(cell, units, team).depth +
         divide_up(sums, 4) * 4;
}
// The gradients of its own sums, and two times what each block of the team adds to those of its own units.
constexpr long long walk_back_floats(formulas::Cell cell, int units, int team, int rows) {
  const int inboxes = 2 * team * rows * units_of_block(units, team);
  return kMailFloats + static_cast<long long>(rows) * back_product(cell, units, team).depth +
         divide_up(inboxes, 4) * 4;
}

// Where a block keeps its part of U. Registers hold it where a thread's part is small and one pass.
enum Held : int { kInL2 = 0, kInRegisters = 1, kInShared = 2 };

// ---- units.cu: a thread walks one unit of a sequence ----

constexpr int kUnitThreads = 64, kUnitFrames = 8;

}  // namespace recurrent
}  // namespace exphil
