// The arguments of the kernels that walk gated recurrences over whole sequences, and back
// (recurrent/walk.cu, walk_back.cu, units.cu), and their shared memory. Compiled by the host compiler
// (c_src/cuda/recurrent/walk.cpp launches the kernels) and by NVRTC. They know no policy: all addresses are
// device memory, f32, and strides are in floats. Cells and the order of their gates: common/cells.cuh.
#pragma once

#include "kernels/common/cells.cuh"

namespace exphil {
namespace recurrent {

// Rows of states, one for each sequence: row i begins at `at + i row`; null: there is none. `row` may be 0.
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

// Frames' rows are those of sequence 0, then of sequence 1, ... Sums have a row for each gate, and row i of a
// gate begins `i sums_row` after its first; other rows have `units` values and no gaps: one place is found
// for all sums of a frame, and one for the rest.

// From the first frame to the last.
struct WalkArguments {
  RecurrentWeights weights;                // of recurrent cells only
  const float* bias[formulas::kMaxGates];  // {units} of the recurrent sums; null: zeros
  const float* x[formulas::kMaxGates];     // frames' sums from the input, with its bias
  ConstRows initial[kMostStates];          // states; null: zeros
  float* out;               // frames: what the cell tells the phases after it; null: not wanted
  Rows final[kMostStates];  // states; null: not wanted
  // What the walk back needs; null: not wanted. Frames.
  float* h[formulas::kMaxGates];  // sums from the state, with their bias
  float* before[kMostStates];     // states before the frame
  long long sequences, seq, sums_row;
  int units;
};

// From the last frame to the first.
struct WalkBackArguments {
  RecurrentWeights weights;
  const float *x[formulas::kMaxGates], *h[formulas::kMaxGates];  // as the walk read and left them
  const float* before[kMostStates];
  const float* d_out;                                          // null: zeros
  ConstRows d_final[kMostStates];                              // null: zeros
  float *d_x[formulas::kMaxGates], *d_h[formulas::kMaxGates];  // null: not wanted
  Rows d_initial[kMostStates];                                 // null: not wanted
  long long sequences, seq, sums_row;
  int units;
};

// ---- walk.cu and walk_back.cu: a team of TEAM blocks walks ROWS sequences; each block owns some units ----

constexpr int divide_up(int value, int by) {
  return (value + by - 1) / by;
}
constexpr int units_of_block(int units, int team) {
  return divide_up(units, team);
}

// The products of a frame by a block's part of U. A task of a thread is `outs` sums of a group over one of
// the slices of the depth.
struct ProductShape {
  int groups, depth, slices, outs;
  constexpr int tasks() const { return groups * slices; }
  constexpr int quads() const { return depth / (4 * slices); }
  constexpr int passes(int threads) const { return divide_up(tasks(), threads); }
  // Floats of the weights that a thread uses.
  constexpr int weights(int threads) const { return passes(threads) * outs * quads() * 4; }
};
// Whether a block has more weights than the shared memory of any device holds, and reads them from the L2.
constexpr int kMostHeldWeights = 56 * 1024;
constexpr bool reads_from_l2(formulas::Cell cell, int units, int team) {
  return formulas::gates_of(cell) * units_of_block(units, team) * units > kMostHeldWeights;
}
// Forward: the gates of one of the block's units over a slice of the state. The lanes of a warp have the same
// slice, and read one float4 together; the sums of slices are added up by who computes the gates. Where
// weights come from the L2, neighbouring lanes have the slices of a unit, to which quads are dealt in turn,
// so that they read a line of them together.
constexpr int kMostWalkSlices = 8, kFewestInSlice = 8, kWalkTasks = 512;
constexpr ProductShape walk_product(formulas::Cell cell, int units, int team) {
  const int own = units_of_block(units, team), most = divide_up(units, kFewestInSlice);
  const int few = kWalkTasks / own < kMostWalkSlices ? kWalkTasks / own : kMostWalkSlices;
  const int slices = few < 1 ? 1 : few < most ? few : most;
  return {own, divide_up(units, 4 * slices) * 4 * slices, slices, formulas::gates_of(cell)};
}
// Backward: some values of the state over a slice of the block's sums; neighbouring threads have the slices.
// What a thread reads from shared memory serves all of its sums: with fewer, that is what the walk waits for.
// Fewer are better where weights come from the L2.
constexpr int kBackSlices = 4, kBackOuts = 4, kFewBackOuts = 2;
constexpr ProductShape back_product(formulas::Cell cell, int units, int team) {
  const int own = formulas::gates_of(cell) * units_of_block(units, team);
  const int outs = reads_from_l2(cell, units, team) ? kFewBackOuts : kBackOuts;
  return {divide_up(units, outs), divide_up(own, 4 * kBackSlices) * 4 * kBackSlices, kBackSlices, outs};
}

constexpr int kMailFloats = 4;  // of a block's shared memory, for recurrent/team.cuh

// In the shared memory of a walk 16 bytes lie behind each slice of a state, so that the lanes of a warp that
// read two slices use different banks.
constexpr int state_slice(const ProductShape& walk) {
  return 4 * walk.quads() + 4;
}
// Floats of a block's shared memory but for weights: two states of all units, and the sums of its own units
// over each slice. Weights behind them are float4s.
constexpr long long walk_floats(formulas::Cell cell, int units, int team, int rows) {
  const ProductShape p = walk_product(cell, units, team);
  const long long states = static_cast<long long>(rows) * 2 * p.slices * state_slice(p);
  return kMailFloats + states + divide_up(rows * p.outs * p.tasks(), 4) * 4;
}
// The gradients of its own sums, of two frames where there are several blocks, and two times what each block
// of the team adds to those of its own units.
constexpr int back_frames(int team) {
  return team > 1 ? 2 : 1;
}
constexpr long long walk_back_floats(formulas::Cell cell, int units, int team, int rows) {
  const int inboxes = 2 * team * rows * units_of_block(units, team);
  const long long sums = static_cast<long long>(rows) * back_product(cell, units, team).depth;
  return kMailFloats + back_frames(team) * sums + divide_up(inboxes, 4) * 4;
}

// Of a thread that computes gates, where those that multiply take some of its registers.
constexpr int kGateRegisters = 88;

// Where a block keeps its part of U. Registers hold it where a thread's part is small and one pass.
enum Held : int { kInL2 = 0, kInRegisters = 1, kInShared = 2 };

// ---- units.cu: a thread walks one unit of a sequence ----

constexpr int kUnitThreads = 64, kUnitFrames = 8;

}  // namespace recurrent
}  // namespace exphil
