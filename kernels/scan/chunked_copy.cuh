// Copies tiles of x, dt, b and c into shared memory while others are scanned. Part of scan/chunked.cu.
#pragma once

#include "kernels/scan/chunked.cuh"

namespace exphil {
namespace scan_chunked {

// The start of this thread's part of the next tile to copy: bytes into x and dt, b, c.
struct Cursor {
  long long x, b, c;
};

// Floats of b and c are copied to their final position, a unit at a time.
constexpr int kRowPiece = !VECTOR_ROWS ? 1 : kProjection == device::kF32 ? kUnit : 4;
using ElementShare = Share<kThreads, kTile, kAcross / PIECE, PIECE>;
using RowShare = Share<kThreads, kTile, kRow / kRowPiece, kRowPiece>;

// The offset of row row + i and column column + k.
template <class Of, class Place2D>
EXPHIL_DEVICE int place(Place2D of, int row, int i, int column, int k) {
  return Of::kAdds ? of(row, column) + of(i, k) : of(row + i, column + k);
}

EXPHIL_DEVICE Cursor find_cursor(const Arguments& p, const Place& s) {
  const BlockPlace<int> block = find_block(p);
  const auto at = [&](int row, long long step, long long group, int in_row, int size) {
    return (s.row(p, s.turn * kTile + row) * step + group + in_row) * size;
  };
  constexpr int kOfProjection = sizeof(ProjectionStorage);
  return {
      at(ElementShare::row(s.thread), p.dim, block.first, ElementShare::column(s.thread), sizeof(Storage)),
      at(RowShare::row(s.thread), p.b_step,
         block.first / static_cast<int>(p.b_group_channels) * (STATE * kFloats), RowShare::column(s.thread),
         kOfProjection),
      at(RowShare::row(s.thread), p.c_step,
         block.first / static_cast<int>(p.c_group_channels) * (STATE * kFloats), RowShare::column(s.thread),
         kOfProjection)};
}
// Moves to this warp's next tile.
EXPHIL_DEVICE void advance(const Arguments& p, const Place& s, Cursor& cursor) {
  constexpr long long kRows = kRound;
  constexpr int kOfProjection = sizeof(ProjectionStorage);
  cursor.x += kRows * element_step(p, s);
  cursor.b += kRows * row_step(s, p.b_step, kOfProjection);
  cursor.c += kRows * row_step(s, p.c_step, kOfProjection);
}

// Starts the copy of x or dt, PIECE elements at a time; zeros beyond the data. The copy is synchronous where
// not even four bytes are aligned.
EXPHIL_DEVICE void start_elements(const Arguments& p, const Place& s, const char* from, int rows,
                                  Storage* to) {
  constexpr int kSize = sizeof(Storage);
  const int step = ElementShare::kRows * element_step(p, s);
  const int row = ElementShare::row(s.thread), column = ElementShare::column(s.thread);
  ElementShare::visit_all(s.thread, [&](int i, int k) {
    if (i > 0 && k == 0) from += step;
    device::copy_async<PIECE * kSize>(to + place<ElementShare>(element_place, row, i, column, k),
                                      from + k * kSize, row + i < rows && column + k < s.channels);
  });
}

// Starts the copy of the states from `first` on of b or c.
EXPHIL_DEVICE void start_rows(const Place& s, const char* from, int step, int first, int rows, float* to,
                              ProjectionStorage* raw) {
  constexpr int kSize = sizeof(ProjectionStorage);
  const int row = RowShare::row(s.thread), column = RowShare::column(s.thread);
  from += first * kFloats * kSize, step *= RowShare::kRows;
  RowShare::visit_all(s.thread, [&](int i, int k) {
    if (i > 0 && k == 0) from += step;
    void* const target = kProjection == device::kF32
                             ? static_cast<void*>(to + place<RowShare>(row_place, row, i, column, k))
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
// Converts a piece of halves of b or c to floats.
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
// Converts copied halves to floats, by the threads that copied them.
EXPHIL_DEVICE void finish_rows(const Place& s, int parity, Tile& tile) {
#if ELEMENT != 0
  const int row = RowShare::row(s.thread), column = RowShare::column(s.thread);
#pragma unroll
  for (int which = 0; which < kProjections; ++which) {
    RowShare::visit_all(s.thread, [&](int i, int k) {
      const ProjectionStorage* const from = tile.raw[which] + row * kRow + column + i * kRow + k;
      float* const to = tile.rows[parity][which] + place<RowShare>(row_place, row, i, column, k);
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
