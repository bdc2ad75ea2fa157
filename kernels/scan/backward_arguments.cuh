// What the launcher (c_src/cuda/scan) and the kernels of the scan's gradient share: arguments and the layout
// of shared memory. Plain data: compiled by the host compiler and by NVRTC.
#pragma once

#include "kernels/scan/arguments.cuh"

namespace exphil {
namespace scan {

// Device addresses; shapes as in core/scan/operands.hpp. Null where left out. scan.y is not used.
struct BackwardArguments {
  Arguments scan;
  const void* dy;
  const float *d_final_state, *given_states;
  void *dx, *ddt, *dz;
  float* d_initial_state;

  // Scratch, f32, complex numbers as pairs. A part is a block of channels (scan.blocks_per_batch of them), a
  // segment is a run of time steps.
  // {batch, segments, dim, state}: the state before each segment; once it has been read, the sum over the
  // segment for A takes its place. The matrix kernel: see there.
  float* checkpoints;
  float* adjoints;  // {batch, segments, dim, state}: the gradient of the state after each segment
  float* decays;    // {batch, segments, dim, state}: the product of Abar over each segment
  float* a_sums;    // the same memory as checkpoints; the matrix kernel: {batch, dim, state, state}
  // {batch, parts, seq, state}: the sum over a part's channels; constant b, c: {batch, segments, dim, state}
  float *b_sums, *c_sums;
  float *d_sums, *bias_sums;  // {batch, segments, dim}
  long long segments, batch;
};

// Sums of rows: to[place(o, k)] = the sum over r of from[o][r][k], in the order that `strands` and the count
// of rows decide. Column k is state k % width of step k / width, and o is a group of a sequence: the place of
// {batch, steps, groups, width}.
struct RowSum {
  const float* from;  // {outer, rows, columns}
  void* to;
  long long outer, rows, columns;
  long long groups, width;
  int strands;  // threads that share a column: 1 or kMostStrands
  int element;  // of `to`, as ELEMENT
};
constexpr int kRowSums = 5, kRowSumThreads = 256, kMostStrands = 8;
struct RowSumArguments {
  RowSum sums[kRowSums];
};

// The shared memory of a block of scan/backward.cu, in floats. row: floats of a row of b or c, padded to
// whole lanes; own: floats of the states of a lane, over its channels.
struct BackwardLayout {
  int segment, steps;  // of a segment, of a piece of it
  int channels;        // of a block at a time
  int row, own, warps;
  bool z;

  EXPHIL_SHARED_FN int pieces() const { return (segment + steps - 1) / steps; }
  EXPHIL_SHARED_FN int stream() const { return segment * channels; }  // dt', v, dy and, with z, y
  EXPHIL_SHARED_FN int rows() const { return (z ? 4 : 3) * stream(); }
  EXPHIL_SHARED_FN int kept() const { return rows() + 2 * segment * row; }
  EXPHIL_SHARED_FN int sums() const { return kept() + (pieces() - 1) * own * 32 * warps; }
  EXPHIL_SHARED_FN int sum() const { return warps * steps * 2 * row; }  // one of two
  // Where the pieces' states were, sums over the steps of channels are added up: at most four for each
  // thread.
  EXPHIL_SHARED_FN int channel_sums() const { return kept() + 4 * 32 * warps; }
  EXPHIL_SHARED_FN int bytes() const {
    return 4 * (sums() + 2 * sum() < channel_sums() ? channel_sums() : sums() + 2 * sum());
  }
  EXPHIL_SHARED_FN int staged_bytes() const { return 4 * kept(); }  // of selective_scan_backward_local
};

}  // namespace scan
}  // namespace exphil
