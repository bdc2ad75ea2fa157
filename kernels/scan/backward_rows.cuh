// How the rows of b and c of a segment are staged in shared memory. Included by backward_lane.cuh.
#pragma once

#include "kernels/scan/backward.cuh"

namespace exphil {
namespace scan {

// b or c, kRowPiece elements at a time.
constexpr int kRowPiece = VECTOR_ROWS ? 4 : 1;
constexpr int kRowPieces = kRow / kRowPiece, kRowsAtOnce = 2;
struct RowPieces {
  Packed<kProjectionElement, kRowPiece> value[kRowsAtOnce];
};
// Those of numbers first, first + kThreads, ...
EXPHIL_DEVICE RowPieces load_row_pieces(const Arguments& p, const Place& s, const void* data,
                                        long long step_size, long long group_channels, int number) {
  const long long from = s.row(p, 0) * step_size + s.first / group_channels * kRowUsed;
  const long long next = s.reverse ? -step_size : step_size;
  RowPieces out = {};
#pragma unroll
  for (int u = 0; u < kRowsAtOnce; ++u) {
    const int i = number + u * kThreads, step = i / kRowPieces, k = i % kRowPieces * kRowPiece;
    if (step >= s.steps || k >= kRowUsed) continue;
    out.value[u] = load_packed<kProjectionElement, kRowPiece>(data, from + step * next + k);
  }
  return out;
}
EXPHIL_DEVICE void store_row_pieces(const RowPieces& in, int number, float* to) {
#pragma unroll
  for (int u = 0; u < kRowsAtOnce; ++u) {
    const int i = number + u * kThreads;
    float value[kRowPiece];
    widen(in.value[u], value);
    if (i < kSegment * kRowPieces) device::store_floats(to + i * kRowPiece, value);
  }
}
// The same where every step exists and the threads share the pieces evenly, each of them a few.
constexpr int kRowsDown = kThreads < kRowPieces ? 1 : kThreads / kRowPieces;
constexpr bool kEvenRows =
    kRow == kRowUsed && kThreads % kRowPieces == 0 && kSegment % kRowsDown == 0 && kSegment / kRowsDown <= 4;
constexpr int kRowRounds = kEvenRows ? kSegment / kRowsDown : 1;
struct WholeRowPieces {
  Packed<kProjectionElement, kRowPiece> value[kRowRounds];
};
EXPHIL_DEVICE WholeRowPieces load_whole_rows(const Arguments& p, const Place& s, const void* data,
                                             long long step_size, long long group_channels) {
  const int step = s.thread / kRowPieces, k = s.thread % kRowPieces * kRowPiece;
  const long long next = s.reverse ? -step_size : step_size;
  long long at = s.row(p, 0) * step_size + s.first / group_channels * kRowUsed + step * next + k;
  WholeRowPieces out;
#pragma unroll
  for (int u = 0; u < kRowRounds; ++u, at += kRowsDown * next) {
    out.value[u] = load_packed<kProjectionElement, kRowPiece>(data, at);
  }
  return out;
}
EXPHIL_DEVICE void store_whole_rows(const Place& s, const WholeRowPieces& in, float* to) {
#pragma unroll
  for (int u = 0; u < kRowRounds; ++u) {
    float value[kRowPiece];
    widen(in.value[u], value);
    device::store_floats(to + (s.thread + u * kThreads) * kRowPiece, value);
  }
}

// The rows of a segment between their loads and their stores, so that other loads are issued meanwhile.
struct Projections {
  WholeRowPieces b, c;
};
EXPHIL_DEVICE bool has_whole_rows(const Place& s) {
  return kEvenRows && s.steps == kSegment;
}
EXPHIL_DEVICE Projections load_projections(const Arguments& p, const Place& s) {
  Projections rows;
  if constexpr (!B_CONSTANT) rows.b = load_whole_rows(p, s, p.b, p.b_step, p.b_group_channels);
  if constexpr (!C_CONSTANT) rows.c = load_whole_rows(p, s, p.c, p.c_step, p.c_group_channels);
  return rows;
}
EXPHIL_DEVICE void store_projections(const Place& s, const Shared& shared, const Projections& rows) {
  if constexpr (!B_CONSTANT) store_whole_rows(s, rows.b, shared.b);
  if constexpr (!C_CONSTANT) store_whole_rows(s, rows.c, shared.c);
}

EXPHIL_DEVICE void stage_projections(const Arguments& p, const Place& s, const Shared& shared) {
  if (B_CONSTANT && C_CONSTANT) return;
  if (has_whole_rows(s)) return store_projections(s, shared, load_projections(p, s));
#pragma unroll 1
  for (int i = s.thread; i < kSegment * kRowPieces; i += kRowsAtOnce * kThreads) {
    RowPieces b, c;
    if constexpr (!B_CONSTANT) b = load_row_pieces(p, s, p.b, p.b_step, p.b_group_channels, i);
    if constexpr (!C_CONSTANT) c = load_row_pieces(p, s, p.c, p.c_step, p.c_group_channels, i);
    if constexpr (!B_CONSTANT) store_row_pieces(b, i, shared.b);
    if constexpr (!C_CONSTANT) store_row_pieces(c, i, shared.c);
  }
}

}  // namespace scan
}  // namespace exphil
