// Copies tiles of x, dt, b and c to shared memory and converts them for the scan, while others are scanned.
// Part of scan/wide.cu.
#pragma once

#include "kernels/scan/wide.cuh"

namespace exphil {
namespace scan_wide {

// x and dt as they are copied; b and c; x and dt as they are activated, pair by pair.
using ElementShare = Share<kThreads, kSteps, 2 * kColumns / PIECE, PIECE>;
using RowShare = Share<kThreads, kSteps, kLanes, kStates>;
using PairShare = Share<kThreads, kSteps, kColumns, 1>;
static_assert(kThreads % (2 * kColumns / PIECE) == 0 && kThreads % kLanes == 0 && kThreads % kColumns == 0,
              "a round of the threads takes whole rows");

// The start of this thread's part of the next tile to copy: bytes into x and dt, b, c; and bytes from one
// step of b and c to the next.
struct Cursor {
  long long x, b, c;
  long long b_step, c_step;
};

// The offset of the group of b or c that the block's channels read: group times STATE.
EXPHIL_DEVICE long long find_group(const Arguments& p, const Place& s, long long channels) {
  return channels == p.dim ? 0 : s.first / channels * STATE;
}
EXPHIL_DEVICE Cursor find_cursor(const Arguments& p, const Place& s) {
  const long long row = s.row(p, RowShare::row(s.thread));
  const int column = RowShare::column(s.thread);
  return {s.offset + ElementShare::row(s.thread) * s.stride + ElementShare::column(s.thread) * kBytes,
          (row * p.b_step + find_group(p, s, p.b_group_channels) + column) * kBytes,
          (row * p.c_step + find_group(p, s, p.c_group_channels) + column) * kBytes,
          s.step(p.b_step) * kBytes, s.step(p.c_step) * kBytes};
}

// Starts the copy of the next tile, of which the first `steps` steps exist (all where there are more);
// everything beyond them and beyond the block's channels is zero. Commits one group of copies, empty where
// there is no such tile.
EXPHIL_DEVICE void start_tile(const Arguments& p, const Place& s, Cursor& cursor, Stage& stage, int steps) {
  if (steps > 0) {
    const int existing = ElementShare::column(s.thread) < s.channels ? steps : 0;
    const char *x = static_cast<const char*>(p.x) + cursor.x, *dt = static_cast<const char*>(p.dt) + cursor.x;
    ElementShare::visit_all(s.thread, [&](int i, int) {
      constexpr int kSize = PIECE * sizeof(Storage), kRound = kThreads * kSize;
      const int at = s.thread * kSize + i / ElementShare::kRows * kRound;
      const bool valid = i + ElementShare::row(s.thread) < existing;
      if (i > 0) x += ElementShare::kRows * s.stride, dt += ElementShare::kRows * s.stride;
      device::copy_async<kSize>(reinterpret_cast<char*>(stage.x) + at, x, valid);
      device::copy_async<kSize>(reinterpret_cast<char*>(stage.dt) + at, dt, valid);
    });
    const char *b = static_cast<const char*>(p.b) + cursor.b, *c = static_cast<const char*>(p.c) + cursor.c;
    RowShare::visit_all(s.thread, [&](int i, int) {
      constexpr int kSize = kStates * sizeof(Storage);
      Storage* const to = stage.rows + (s.thread + i / RowShare::kRows * kThreads) * kStates;
      const bool valid = i + RowShare::row(s.thread) < steps;
      if (i > 0) b += RowShare::kRows * cursor.b_step, c += RowShare::kRows * cursor.c_step;
      device::copy_async<kSize>(to, b, valid);
      device::copy_async<kSize>(to + 2 * kRows, c, valid);
    });
    cursor.x += kSteps * s.stride, cursor.b += kSteps * cursor.b_step, cursor.c += kSteps * cursor.c_step;
  }
  device::commit_copies();
}

// dt_bias of the pair that this thread activates.
EXPHIL_DEVICE float2 load_bias(const Arguments& p, const Place& s) {
  const int first = 2 * PairShare::column(s.thread);
  if (p.dt_bias == nullptr || first >= s.channels) return {0.0f, 0.0f};
  return {p.dt_bias[s.first + first], p.dt_bias[s.first + first + 1]};
}

EXPHIL_DEVICE float2 activate(Storage x, Storage dt, float bias, const Arguments& p) {
  const float active = activate_dt(p, device::widen<ELEMENT>(dt), bias), raw = device::widen<ELEMENT>(x);
  return {active, Rule::kPairHoldsX ? raw : __fmul_rn(active, raw)};
}
// dt' and v of a copied tile, of which the first `steps` steps exist (all where there are more); beyond them
// both are zero, which leaves a state unchanged. Halves of b and c become floats.
EXPHIL_DEVICE void activate(const Arguments& p, const Place& s, const float2& bias, const Stage& stage,
                            Block& block, int parity, int steps) {
  float4* const active = block.active[parity];
  Pair x[PairShare::kRounds], dt[PairShare::kRounds];  // loaded together: no round waits for the previous one
  PairShare::visit_all(s.thread, [&](int i, int) {
    constexpr int kEach = PairShare::kRows;
    x[i / kEach] = stage.x[s.thread + i / kEach * kThreads];
    dt[i / kEach] = stage.dt[s.thread + i / kEach * kThreads];
  });
  PairShare::visit_all(s.thread, [&](int i, int) {
    const int round = i / PairShare::kRows;
    const float2 first = activate(x[round].first, dt[round].first, bias.x, p);
    const float2 second = activate(x[round].second, dt[round].second, bias.y, p);
    active[s.thread + round * kThreads] = make_float4(first.x, first.y, second.x, second.y);
  });
  if (steps < kSteps) {  // the last tile
    PairShare::visit_all(s.thread, [&](int i, int) {
      const bool beyond = i + PairShare::row(s.thread) >= steps;
      if (beyond) active[s.thread + i / PairShare::kRows * kThreads] = make_float4(0, 0, 0, 0);
    });
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
