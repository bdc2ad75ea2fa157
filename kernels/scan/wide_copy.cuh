// How tiles of x, dt, b and c come into shared memory and become what the scan reads, while others are
// scanned. Part of scan/wide.cu.
#pragma once

#include "kernels/scan/wide.cuh"

namespace exphil {
namespace scan_wide {

// How a tile's rows of Pieces pieces are dealt out to the threads of the block: piece by piece, row after
// row, so that a thread stays in its column. Its piece of round i is s.thread + i * kThreads, in the row
// row(s, i).
template <int Pieces>
struct Deal {
  static_assert(kThreads % Pieces == 0, "a round of the threads takes whole rows");
  static constexpr int kRowsOfRound = kThreads / Pieces;
  static constexpr int kRounds = (kSteps + kRowsOfRound - 1) / kRowsOfRound;
  static EXPHIL_DEVICE int row(const Place& s, int i) {
    return static_cast<int>(static_cast<unsigned>(s.thread) / Pieces) + i * kRowsOfRound;
  }
  static EXPHIL_DEVICE int column(const Place& s) {
    return static_cast<int>(static_cast<unsigned>(s.thread) % Pieces);
  }
  // Only the last round may have threads to spare.
  static EXPHIL_DEVICE bool has(const Place& s, int i) {
    return (i + 1) * kRowsOfRound <= kSteps || row(s, i) < kSteps;
  }
};
using ElementDeal = Deal<2 * kColumns / PIECE>;  // of x and dt as they are copied
using RowDeal = Deal<kLanes>;                    // of b and c
using PairDeal = Deal<kColumns>;                 // of x and dt as they are activated

// Where this thread's share of the tile that is copied next begins: bytes into x and dt, b, c; and bytes from
// one step of b and c to the next.
struct Cursor {
  long long x, b, c;
  long long b_step, c_step;
};

// Which group of b or c the block's channels read, times STATE.
__device__ __forceinline__ long long find_group(const Arguments& p, const Place& s, long long channels) {
  return channels == p.dim ? 0 : s.first / channels * STATE;
}
__device__ __forceinline__ Cursor find_cursor(const Arguments& p, const Place& s) {
  const long long row = s.batch * p.seq + (s.reverse ? p.seq - 1 - RowDeal::row(s, 0) : RowDeal::row(s, 0));
  const int column = RowDeal::column(s) * kStates;
  return {s.offset + ElementDeal::row(s, 0) * s.stride + ElementDeal::column(s) * PIECE * kBytes,
          (row * p.b_step + find_group(p, s, p.b_group_channels) + column) * kBytes,
          (row * p.c_step + find_group(p, s, p.c_group_channels) + column) * kBytes,
          (s.reverse ? -p.b_step : p.b_step) * kBytes, (s.reverse ? -p.c_step : p.c_step) * kBytes};
}

// Starts the copy of the next tile, of which the first `steps` steps exist (all where there are more); beyond
// them and beyond the block's channels all is zero. A group of copies, empty where there is no such tile.
__device__ __forceinline__ void start_tile(const Arguments& p, const Place& s, Cursor& cursor, Stage& stage,
                                           int steps) {
  if (steps > 0) {
    const int existing = ElementDeal::column(s) * PIECE < s.channels ? steps : 0;
    const char *x = static_cast<const char*>(p.x) + cursor.x, *dt = static_cast<const char*>(p.dt) + cursor.x;
#pragma unroll
    for (int i = 0; i < ElementDeal::kRounds; ++i) {
      constexpr int kSize = PIECE * sizeof(Storage);
      const int at = (s.thread + i * kThreads) * kSize;
      const bool valid = ElementDeal::row(s, i) < existing;
      if (ElementDeal::has(s, i)) {
        device::copy_async<kSize>(reinterpret_cast<char*>(stage.x) + at, x, valid);
        device::copy_async<kSize>(reinterpret_cast<char*>(stage.dt) + at, dt, valid);
      }
      x += ElementDeal::kRowsOfRound * s.stride, dt += ElementDeal::kRowsOfRound * s.stride;
    }
    const char *b = static_cast<const char*>(p.b) + cursor.b, *c = static_cast<const char*>(p.c) + cursor.c;
#pragma unroll
    for (int i = 0; i < RowDeal::kRounds; ++i) {
      constexpr int kSize = kStates * sizeof(Storage);
      Storage* const to = stage.rows + (s.thread + i * kThreads) * kStates;
      const bool valid = RowDeal::row(s, i) < steps;
      if (RowDeal::has(s, i)) {
        device::copy_async<kSize>(to, b, valid);
        device::copy_async<kSize>(to + 2 * kRows, c, valid);
      }
      b += RowDeal::kRowsOfRound * cursor.b_step, c += RowDeal::kRowsOfRound * cursor.c_step;
    }
    cursor.x += kSteps * s.stride, cursor.b += kSteps * cursor.b_step, cursor.c += kSteps * cursor.c_step;
  }
  device::group_copies();
}

// dt_bias of the pair that this thread activates.
__device__ __forceinline__ float2 load_bias(const Arguments& p, const Place& s) {
  const int first = 2 * PairDeal::column(s);
  if (p.dt_bias == nullptr || first >= s.channels) return {0.0f, 0.0f};
  return {p.dt_bias[s.first + first], p.dt_bias[s.first + first + 1]};
}

__device__ __forceinline__ float2 activate(Storage x, Storage dt, float bias, const Arguments& p) {
  const float active = activate_dt(p, device::widen<ELEMENT>(dt), bias), raw = device::widen<ELEMENT>(x);
  return {active, Rule::kPairHoldsX ? raw : __fmul_rn(active, raw)};
}
// dt' and v of a tile that has arrived, of which the first `steps` steps exist (all where there are more);
// beyond them both are zero, which leaves a state as it is. Halves of b and c become floats.
__device__ __forceinline__ void activate(const Arguments& p, const Place& s, const float2& bias,
                                         const Stage& stage, Block& block, int parity, int steps) {
  float4* const active = block.active[parity];
  Two x[PairDeal::kRounds], dt[PairDeal::kRounds];  // all at once: no round waits for the one before
#pragma unroll
  for (int i = 0; i < PairDeal::kRounds; ++i) {
    if (PairDeal::has(s, i))
      x[i] = stage.x[s.thread + i * kThreads], dt[i] = stage.dt[s.thread + i * kThreads];
  }
#pragma unroll
  for (int i = 0; i < PairDeal::kRounds; ++i) {
    const float2 first = activate(x[i].first, dt[i].first, bias.x, p);
    const float2 second = activate(x[i].second, dt[i].second, bias.y, p);
    if (PairDeal::has(s, i)) {
      active[s.thread + i * kThreads] = make_float4(first.x, first.y, second.x, second.y);
    }
  }
  if (steps < kSteps) {  // the last tile
#pragma unroll
    for (int i = 0; i < PairDeal::kRounds; ++i) {
      const bool beyond = PairDeal::has(s, i) && PairDeal::row(s, i) >= steps;
      if (beyond) active[s.thread + i * kThreads] = make_float4(0, 0, 0, 0);
    }
  }
#if ELEMENT != 0
#pragma unroll
  for (int i = 0; i < kRows; i += kThreads) {
    const int at = i + s.thread;
    if (i + kThreads <= kRows || at < kRows) {
      block.rows[parity][at] = device::widen_four<ELEMENT>(stage.rows + at * kStates);
    }
  }
#endif
}

}  // namespace scan_wide
}  // namespace exphil
