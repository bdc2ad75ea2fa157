// Shared by the launcher (c_src/cuda/scan) and the scan kernels: the kernel's arguments and the layout of its
// shared memory. Plain data, compiled by the host compiler and by NVRTC, so it includes nothing.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define EXPHIL_SHARED_FN __host__ __device__ constexpr
#else
#define EXPHIL_SHARED_FN constexpr
#endif

namespace exphil {
namespace scan {

// Device addresses; shapes as in core/scan/call.hpp. Null where left out.
struct Arguments {
  const void *x, *dt, *b, *c, *z;
  const float *a, *d, *dt_bias, *initial_state;
  void *y, *y_reverse;
  float *final_state, *states;
  long long seq, dim;
  // b and c: elements (c64 counts two) between time steps, and between the groups of channels that share
  // them.
  long long b_step, c_step;
  long long b_group_channels, c_group_channels;
  // A span is a run of channels that share one group of b and one of c; no block crosses its end.
  long long span_channels;
  int blocks_per_span, spans;
  int reverse;           // direction of y; y_reverse, where present, has the opposite one
  int blocks_per_batch;  // spans * blocks_per_span
  float dt_min, dt_max;
};

// The shared memory of scan/general.cu: the sizes of a variant, and the warps of a block, which are chosen at
// launch. All offsets are in bytes.
struct Layout {
  int row_floats;  // one padded row of b or c, widened to f32
  int steps;       // of a tile
  int channels;    // of a warp
  bool half, b_rows, c_rows;
  int warps;  // of a block

  EXPHIL_SHARED_FN int projections() const { return (b_rows ? 1 : 0) + (c_rows ? 1 : 0); }
  EXPHIL_SHARED_FN int row_block() const { return (steps * row_floats * 4 + 15) / 16 * 16; }  // of b or c
  EXPHIL_SHARED_FN int raw_block() const { return half ? (row_block() / 2 + 15) / 16 * 16 : 0; }
  EXPHIL_SHARED_FN int raw() const { return 2 * projections() * row_block(); }  // rows are double-buffered
  EXPHIL_SHARED_FN int pairs() const { return raw() + projections() * raw_block(); }
  EXPHIL_SHARED_FN int bytes() const { return pairs() + warps * steps * channels * 8; }
};

// Shared memory of a block of scan/wide.cu with `warps` warps: a
// ring of `stages` tiles of x, dt, b and c in their stored type; dt'
// and v of two tiles; for halves, b and c of two tiles as floats.
EXPHIL_SHARED_FN int wide_bytes(int state, int steps, int warps, int stages, bool half) {
  const int channels = warps * (256 / state), size = half ? 2 : 4, rows = 2 * steps * state;
  const int elements = (steps * channels * size + 15) / 16 * 16;  // of x, or of dt
  return stages * (2 * elements + rows * size) + 2 * steps * channels * 8 + (half ? 2 * rows * 4 : 0);
}

// scan/chunked.cu, where a lane scans `per_pass` states at a time: all states rounded up to that, states of
// b and c in shared memory at a time, and the shared memory of a block. `floats` of a state: 2 where it is
// complex.
EXPHIL_SHARED_FN int chunked_states(int state, int per_pass) {
  return (state + per_pass - 1) / per_pass * per_pass;
}
// The rows of b or c of one chunk, in floats: state after state, the steps of a unit of `per_pass` states
// side by side, so that a lane reads 16 bytes at a time. Gaps of 16 bytes put units and chunks on different
// banks.
EXPHIL_SHARED_FN int chunked_unit(int unit, int steps) {
  return unit * steps + 4;
}
EXPHIL_SHARED_FN int chunked_row_chunk(int row, int unit, int steps) {
  const int units = row / unit * chunked_unit(unit, steps);
  return units % 32 == 0 ? units + 4 : units;
}
EXPHIL_SHARED_FN int chunked_bytes(int state, int per_pass, int staged, int floats, bool foh, int steps,
                                   int chunks, int channel_warps, int time_warps, int buffers,
                                   int projections, int element_bytes) {
  const int row = staged * floats, kept = projections > 0 ? projections : 1;
  const int states = chunked_states(state, per_pass), channels = 32 / chunks, tile = steps * chunks;
  const int gap = channels < 16 / element_bytes ? 16 / element_bytes : channels;
  const int tile_bytes = buffers * kept * chunks * chunked_row_chunk(row, per_pass * floats, steps) * 4 +
                         (element_bytes == 2 ? kept * tile * row * 2 : 0) +
                         2 * buffers * chunks * (steps * channel_warps * channels + gap) * element_bytes;
  return time_warps * ((tile_bytes + 15) / 16 * 16 + channel_warps * states * channels * floats * 8) +
         channel_warps * states * channels * (floats == 2 || foh ? 8 : 4);
}

// scan/short.cu: blocks of a cluster, chunks of a block, steps of a chunk, states of a lane, and the shared
// memory of a block with `warps` warps side by side in channels.
constexpr int kShortBlocks = 8, kShortChunks = 8, kShortSteps = 16, kShortStates = 8;
EXPHIL_SHARED_FN int short_bytes(int state, int warps, int element_bytes, bool z) {
  const int across = warps * 32 / kShortChunks, parts = state / kShortStates;
  const int tile = kShortSteps * kShortChunks;
  const int elements = (z ? 3 : 2) * (tile * across * element_bytes + 16 * kShortChunks);
  const int rows = 2 * (tile * state * 4 + 16 * kShortChunks);
  const int raw = element_bytes == 2 ? 2 * tile * state * 2 : 0;
  const int inbox = warps * parts * kShortBlocks * 32 * 16;
  const int sums = parts * kShortChunks * (kShortSteps / 4 * across + 32 / kShortChunks) * 16;
  return elements + rows + raw + inbox + sums;
}

}  // namespace scan
}  // namespace exphil
