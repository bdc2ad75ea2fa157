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
  // {batch, segments, dim}: the sum of dt' over each segment, where the product of Abar follows from it
  // (BackwardRule::kDecayFromSum); elsewhere the product, {batch, segments, dim, state}.
  float* decays;
  float* a_sums;  // the same memory as checkpoints; the matrix kernel: {batch, dim, state, state}
  // {batch, parts, seq, state}: the sum over a part's channels; constant b, c: {batch, segments, dim, state}
  float *b_sums, *c_sums;
  float *d_sums, *bias_sums;  // {batch, segments, dim}
  long long segments, batch;
};

// A sequence whose time several devices share: what the segments that one of them has do together.
struct BackwardTotalsArguments {
  BackwardArguments part;
  // {batch, dim, state}, complex numbers as pairs: the product of Abar; the state behind the last segment
  // from a zero state; the gradient of the state before the first, where nothing comes from behind the last.
  float *decay, *end, *start;
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
  int staged;          // steps of a segment whose streams are in shared memory at a time
  int channels;        // of a block at a time
  int row, own, warps;
  bool z;

  EXPHIL_SHARED_FN int pieces() const { return (segment + steps - 1) / steps; }
  EXPHIL_SHARED_FN int stream() const { return staged * channels; }  // dt', v, dy and, with z, y
  EXPHIL_SHARED_FN int rows() const { return (z ? 4 : 3) * stream(); }
  EXPHIL_SHARED_FN int kept() const { return rows() + 2 * segment * row; }
  // Of a warp: the states at the beginning of each piece and, from the end, where states have been read, the
  // sums for b and c of summed_pieces() pieces, from the last piece on. A multiple of 16 bytes.
  EXPHIL_SHARED_FN int states() const { return own * 32; }
  EXPHIL_SHARED_FN int sum() const { return steps * 2 * row; }
  EXPHIL_SHARED_FN int summed_pieces() const {
    return sum() <= states() || pieces() < 2 ? pieces() : pieces() / 2;
  }
  EXPHIL_SHARED_FN int of_warp() const {
    const int first = (pieces() - 1) * states() + sum();
    const int last = (pieces() - summed_pieces()) * states() + summed_pieces() * sum();
    return ((first > last ? first : last) + 3) / 4 * 4;
  }
  EXPHIL_SHARED_FN int states_at(int piece) const { return piece * states(); }
  // Which of summed_pieces() a piece is.
  EXPHIL_SHARED_FN int summed(int piece) const { return (pieces() - 1 - piece) % summed_pieces(); }
  EXPHIL_SHARED_FN int sums_at(int piece) const { return of_warp() - (summed(piece) + 1) * sum(); }
  // There, too, sums over the steps of channels are added up: at most four for each thread.
  EXPHIL_SHARED_FN int channel_sums() const { return 4 * 32 * warps; }
  EXPHIL_SHARED_FN int bytes() const {
    return 4 * (kept() + (warps * of_warp() < channel_sums() ? channel_sums() : warps * of_warp()));
  }
  EXPHIL_SHARED_FN int staged_bytes() const { return 4 * kept(); }  // of selective_scan_backward_local
};

}  // namespace scan
}  // namespace exphil
