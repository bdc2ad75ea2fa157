// What the launcher (c_src/cuda/scan_launcher.cpp) and the scan kernels share: the kernel's arguments and its
// shared-memory layout. Plain data: compiled by the host compiler and by NVRTC, so it includes nothing.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define EXPHIL_SHARED_FN __host__ __device__ constexpr
#else
#define EXPHIL_SHARED_FN constexpr
#endif

namespace exphil {
namespace scan {

// Device addresses; shapes as in core/scan_problem.hpp. Null where left out.
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
  // A span is a run of channels that share one group of b and one of c; blocks do not cross it.
  long long span_channels;
  int blocks_per_span, spans;
  int reverse;           // direction of y; y_reverse, where it is asked for, goes the other way
  int blocks_per_batch;  // spans * blocks_per_span
  float dt_min, dt_max;
};

// Sizes that a variant is compiled for, and those chosen at launch (warps of a block: `groups` of channels
// times `times` chunks of time). Everything in the layout is counted in bytes.
struct Layout {
  int row_floats;    // one padded row of b or c, widened to f32
  int steps;         // per chunk
  int channels;      // per warp
  int state_floats;  // per lane
  bool half, chunked, b_rows, c_rows;
  int groups, times;

  EXPHIL_SHARED_FN int rows() const { return steps * times; }
  EXPHIL_SHARED_FN int warps() const { return groups * times; }
  EXPHIL_SHARED_FN int projections() const { return (b_rows ? 1 : 0) + (c_rows ? 1 : 0); }
  EXPHIL_SHARED_FN int row_block() const {
    return (rows() * row_floats * 4 + 15) / 16 * 16;
  }  // one of b or c
  EXPHIL_SHARED_FN int raw_block() const { return half ? (row_block() / 2 + 15) / 16 * 16 : 0; }
  EXPHIL_SHARED_FN int raw() const { return 2 * projections() * row_block(); }  // rows are double-buffered
  EXPHIL_SHARED_FN int pairs() const { return raw() + projections() * raw_block(); }
  EXPHIL_SHARED_FN int exchange() const { return pairs() + warps() * steps * channels * 8; }
  EXPHIL_SHARED_FN int carry() const { return exchange() + (chunked ? warps() * 32 * state_floats * 8 : 0); }
  EXPHIL_SHARED_FN int bytes() const { return carry() + (chunked ? 2 * groups * 32 * state_floats * 4 : 0); }
};

// Shared memory of one chunk of selective_scan_wide.cu, for its `groups` warps: rows of b and c twice, dt'
// and v, mailboxes.
EXPHIL_SHARED_FN int wide_chunk_bytes(int state, int steps, int groups, bool half) {
  const int lanes = state / 4, pairs = 32 / lanes;
  const int pieces = 2 * steps * lanes;
  const int bytes =
      16 * (2 * pieces + groups * (steps * pairs + 2 * 32)) + (half ? 8 * pieces : 0) + 4 * groups;
  return (bytes + 15) / 16 * 16;
}

}  // namespace scan
}  // namespace exphil
