// How tiles of x, dt, b and c come into shared memory while others are scanned. Part of
// selective_scan_chunked.cu.
#pragma once

#include "selective_scan_chunked.cuh"

namespace exphil {
namespace scan_chunked {

// Where this thread's share of the tile that is copied next begins: bytes into x and dt, b, c.
struct Cursor {
  long long x, b, c;
};

// How kTile rows of Pieces pieces of Size elements are dealt out to the threads that share a tile: piece by
// piece, row after row, kRows rows at a time, or a row in kRounds where there are more pieces than threads.
template <int Pieces, int Size>
struct Deal {
  static constexpr bool kWhole = kThreads >= Pieces;
  static constexpr int kRows = kWhole ? kThreads / Pieces : 1;
  // Places in shared memory add up: a round's is the first's and a constant.
  static constexpr bool kAdds = (kRows & (kRows - 1)) == 0;
  static constexpr int kRounds = kWhole ? 1 : (Pieces + kThreads - 1) / kThreads;
  static EXPHIL_DEVICE int row(const Place& s) { return kWhole ? s.thread / Pieces : 0; }
  static EXPHIL_DEVICE int column(const Place& s) { return (kWhole ? s.thread % Pieces : s.thread) * Size; }
  // visit(i, k): the row row() + i, the column column() + k.
  template <class Visit>
  static EXPHIL_DEVICE void visit_all(const Place& s, Visit visit) {
#pragma unroll
    for (int i = 0; i < kTile; i += kRows) {
#pragma unroll
      for (int k = 0; k < kRounds; ++k) {
        const bool spare = (kThreads % Pieces != 0 && row(s) >= kRows) ||
                           (kTile % kRows != 0 && i + row(s) >= kTile) ||
                           (kRounds > 1 && column(s) + k * kThreads * Size >= Pieces * Size);
        if (!spare) visit(i, k * kThreads * Size);
      }
    }
  }
};
// Floats of b and c go where they are read, a unit at a time.
constexpr int kRowPiece = !VECTOR_ROWS ? 1 : kProjection == device::kF32 ? kUnit : 4;
using ElementDeal = Deal<kAcross / PIECE, PIECE>;
using RowDeal = Deal<kRow / kRowPiece, kRowPiece>;

// The place of row row + i and column column + k.
template <class Of, class Place2D>
EXPHIL_DEVICE int place(Place2D of, int row, int i, int column, int k) {
  return Of::kAdds ? of(row, column) + of(i, k) : of(row + i, column + k);
}

EXPHIL_DEVICE Cursor find_cursor(const Arguments& p, const Place& s) {
  const Column column = find_column(p);
  const auto at = [&](int row, long long step, long long group, int in_row, int size) {
    const int position = s.turn * kTile + row;
    const long long absolute =
        static_cast<long long>(column.batch) * p.seq + (s.reverse ? p.seq - 1 - position : position);
    return (absolute * step + group + in_row) * size;
  };
  constexpr int kOfProjection = sizeof(ProjectionStorage);
  return {
      at(ElementDeal::row(s), p.dim, column.first, ElementDeal::column(s), sizeof(Storage)),
      at(RowDeal::row(s), p.b_step, column.first / static_cast<int>(p.b_group_channels) * (STATE * kFloats),
         RowDeal::column(s), kOfProjection),
      at(RowDeal::row(s), p.c_step, column.first / static_cast<int>(p.c_group_channels) * (STATE * kFloats),
         RowDeal::column(s), kOfProjection)};
}
// On to this warp's next tile.
EXPHIL_DEVICE void advance(const Arguments& p, const Place& s, Cursor& cursor) {
  constexpr long long kRows = kRound;
  constexpr int kOfProjection = sizeof(ProjectionStorage);
  cursor.x += kRows * element_step(p, s);
  cursor.b += kRows * row_step(s, p.b_step, kOfProjection);
  cursor.c += kRows * row_step(s, p.c_step, kOfProjection);
}

// Starts the copy of x or dt, PIECE elements at a time; zeros where there is nothing. Where not even four
// bytes are aligned the copy is an ordinary one.
EXPHIL_DEVICE void start_elements(const Arguments& p, const Place& s, const char* from, int rows,
                                  Storage* to) {
  constexpr int kSize = sizeof(Storage);
  const int step = ElementDeal::kRows * element_step(p, s);
  const int row = ElementDeal::row(s), column = ElementDeal::column(s);
  ElementDeal::visit_all(s, [&](int i, int k) {
    if (i > 0 && k == 0) from += step;
    device::copy_async<PIECE * kSize>(to + place<ElementDeal>(element_place, row, i, column, k),
                                      from + k * kSize, row + i < rows && column + k < s.block_channels);
  });
}

// Starts the copy of the states from `first` on of b or c.
EXPHIL_DEVICE void start_rows(const Place& s, const char* from, int step, int first, int rows, float* to,
                              ProjectionStorage* raw) {
  constexpr int kSize = sizeof(ProjectionStorage);
  const int row = RowDeal::row(s), column = RowDeal::column(s);
  from += first * kFloats * kSize, step *= RowDeal::kRows;
  RowDeal::visit_all(s, [&](int i, int k) {
    if (i > 0 && k == 0) from += step;
    void* const target = kProjection == device::kF32
                             ? static_cast<void*>(to + place<RowDeal>(row_place, row, i, column, k))
                             : raw + row * kRow + column + i * kRow + k;
    device::copy_async<kRowPiece * kSize>(target, from + k * kSize,
                                          row + i < rows && first * kFloats + column + k < STATE * kFloats);
  });
}
EXPHIL_DEVICE void start_rows(const Arguments& p, const Place& s, const Cursor& cursor, int first, int rows,
                              int parity, Tile& tile) {
  constexpr int kSize = sizeof(ProjectionStorage);
#if ELEMENT != 0
  ProjectionStorage *const raw_b = tile.raw[0], *const raw_c = tile.raw[kKept - 1];
#else
  ProjectionStorage *const raw_b = nullptr, *const raw_c = nullptr;
#endif
#if !B_CONSTANT
  start_rows(s, offset(p.b, cursor.b), row_step(s, p.b_step, kSize), first, rows, tile.rows[parity][0],
             raw_b);
#endif
#if !C_CONSTANT
  start_rows(s, offset(p.c, cursor.c), row_step(s, p.c_step, kSize), first, rows,
             tile.rows[parity][kKept - 1], raw_c);
#endif
  (void)raw_b, (void)raw_c;
}
// A piece of halves of b or c becomes floats.
EXPHIL_DEVICE void put_floats(float* to, float4 v) {
  const float flat[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int u = 0; u < 4; u += kUnit) {
    float unit[kUnit];
#pragma unroll
    for (int f = 0; f < kUnit; ++f) unit[f] = flat[u + f];
    device::store_floats(to + u / kUnit * kUnitRows, unit);
  }
}
// Halves that have arrived become floats, by the threads that copied them.
EXPHIL_DEVICE void finish_rows(const Place& s, int parity, Tile& tile) {
#if ELEMENT != 0
  const int row = RowDeal::row(s), column = RowDeal::column(s);
#pragma unroll
  for (int which = 0; which < kProjections; ++which) {
    RowDeal::visit_all(s, [&](int i, int k) {
      const ProjectionStorage* const from = tile.raw[which] + row * kRow + column + i * kRow + k;
      float* const to = tile.rows[parity][which] + place<RowDeal>(row_place, row, i, column, k);
      if constexpr (kRowPiece == 4) {
        put_floats(to, device::widen_four<kProjection>(from));
      } else {
        *to = device::widen<kProjection>(*from);
      }
    });
  }
#endif
}

}  // namespace scan_chunked
}  // namespace exphil
