// The scan of columns (inner > 1). A block processes `Lanes` columns, and of each a tile: `stretches`
// segments of `Items` steps, one segment per thread, in registers. The threads' summaries are combined across
// the block, column by column, and every thread then scans its segment again from the state before it. Each
// tensor is read once or written once. Instantiated by associative/scan.cu.
//
// With Walk a block processes all tiles of its columns, and reads the next tile during the current one.
// Without, every tile has its own block, and the blocks hand over (associative/handover.cuh).
//
// Block {32, warps}; grid {groups, directions}, without Walk {tiles * groups, directions}, tiles outermost.
#pragma once

#include "kernels/associative/handover.cuh"

namespace exphil {
namespace associative {

template <Op O, Element E, bool Compensated, int Items, int Lanes, bool Walk, bool Initial = false,
          bool Gradient = false>
struct Columns : Kit<O, E, Compensated, Initial, Gradient> {
  using Base = Kit<O, E, Compensated, Initial, Gradient>;
  using typename Base::Builder;
  using typename Base::Math;
  using typename Base::State;
  using typename Base::Store;
  using typename Base::Stored;
  using typename Base::Summary;
  using typename Base::Value;

  // One thread's elements in their stored type: a conversion would wait for values that are prefetched.
  struct Piece {
    Stored a[Base::kHasDecay ? Items : 1], x[Items];
    EXPHIL_DEVICE Value decay(int i) const {
      if constexpr (Base::kHasDecay) return Base::decay_of(a[i]);
      return Value();
    }
    EXPHIL_DEVICE Value input(int i) const { return Store::value(x[i]); }
  };

  // Of one block. The additional column avoids bank conflicts between the warps.
  struct Shared {
    Summary summaries[kMaxStretches][Lanes + 1];
    State starts[kMaxStretches][Lanes + 1];
    State carries[Lanes];
  };

  // The number of steps of a segment that begins at `begin`, in a sequence of this length.
  static EXPHIL_DEVICE int count_of(long long begin, long long length) {
    const long long rest = length - begin;
    return rest >= Items ? Items : static_cast<int>(rest);
  }

  // The element `bytes` further.
  template <class T>
  static EXPHIL_DEVICE T* stepped_by(T* from, long long bytes) {
    return reinterpret_cast<T*>(stepped(reinterpret_cast<long long>(from), bytes));
  }

  static EXPHIL_DEVICE void load(const Arguments& p, const Cursor& cursor, long long begin, int count,
                                 Piece* piece) {
    const long long bytes = cursor.stride * static_cast<long long>(sizeof(Stored)), at = cursor.at(begin);
    const Stored* x = static_cast<const Stored*>(p.x) + at;
    EXPHIL_UNROLL
    for (int i = 0; i < Items; ++i, x = stepped_by(x, bytes)) {
      piece->x[i] = i < count ? *x : Stored();
    }
    if constexpr (Base::kHasDecay) {
      const Stored* a = static_cast<const Stored*>(p.a) + (Gradient ? at - cursor.stride : at);
      EXPHIL_UNROLL
      for (int i = 0; i < Items; ++i, a = stepped_by(a, bytes)) {
        const bool none = Gradient && i == 0 && begin == 0;
        piece->a[i] = i < count && !none ? *a : Stored();
      }
    }
  }

  // The recurrence's states before a segment's steps.
  struct States {
    Stored h[Gradient ? Items : 1];
  };
  static EXPHIL_DEVICE void load_states([[maybe_unused]] const Arguments& p,
                                        [[maybe_unused]] const Cursor& cursor,
                                        [[maybe_unused]] long long begin, [[maybe_unused]] long long length,
                                        [[maybe_unused]] States* states) {
    if constexpr (Gradient) {
      const long long bytes = cursor.stride * static_cast<long long>(sizeof(Stored));
      const int count = count_of(begin + 1, length);
      const Stored* h = static_cast<const Stored*>(p.h) + cursor.at(begin + 1);
      EXPHIL_UNROLL
      for (int i = 0; i < Items; ++i, h = stepped_by(h, bytes)) {
        states->h[i] = i < count ? *h : Stored();
      }
    }
  }

  // Includes steps beyond the sequence's end, because no step follows them.
  static EXPHIL_DEVICE Summary summary_of(const Piece& piece) {
    Builder builder;
    EXPHIL_UNROLL
    for (int i = 0; i < Items; ++i) builder.push(piece.decay(i), piece.input(i));
    return builder.finish();
  }

  static EXPHIL_DEVICE void store(const Arguments& p, int direction, const Cursor& cursor, long long begin,
                                  int count, const Piece& piece, State h) {
    const long long bytes = cursor.stride * static_cast<long long>(sizeof(Stored));
    Stored* y = Base::y_of(p, direction) + cursor.at(begin);
    EXPHIL_UNROLL
    for (int i = 0; i < Items; ++i, y = stepped_by(y, bytes)) {
      Math::step(h, piece.decay(i), piece.input(i));
      if (i < count) Store::store(y, Math::value(h));
    }
  }

  static EXPHIL_DEVICE void store_gradients(const Arguments& p, int direction, const Cursor& cursor,
                                            long long column, long long begin, int count, const Piece& piece,
                                            const States& states, State h) {
    const long long bytes = cursor.stride * static_cast<long long>(sizeof(Stored)), at = cursor.at(begin);
    Stored* y = Base::y_of(p, direction) + at;
    Stored* da = static_cast<Stored*>(p.da) + at;
    State last = h;
    EXPHIL_UNROLL
    for (int i = 0; i < Items; ++i, y = stepped_by(y, bytes), da = stepped_by(da, bytes)) {
      Math::step(h, piece.decay(i), piece.input(i));
      if (i >= count) continue;
      Base::store_gradients(y, da, Math::value(h), Store::value(states.h[i]));
      last = h;
    }
    if (count > 0 && begin + count == p.length) Base::store_last(p, cursor, column, Math::value(last));
  }

  // Computes the states before every segment of the columns' tile k. A thread handles segment `piece` of
  // column `lane_column`; the segments of a column are consecutive lanes of one warp.
  static EXPHIL_DEVICE void join_column(const Arguments& p, int direction, long long k, long long column,
                                        int lane_column, int piece, int stretches, Shared& shared) {
    const Summary own = piece < stretches ? shared.summaries[piece][lane_column] : Math::identity();
    const Summary joined = joined_over_lanes<Math>(own, piece, stretches);
    Summary below = lane_above(joined, 1);
    if (piece == 0) below = Math::identity();
    const long long begin = k * p.tile, mine = begin + piece * Items;
    State carry = Base::first_state(p, column);
    if constexpr (Walk) {
      if (k > 0) carry = shared.carries[lane_column];
      sync_warp();
      if (piece == stretches - 1 && k + 1 < p.tiles) {
        shared.carries[lane_column] =
            Base::advance(p, direction, column, carry, joined, begin, begin + p.tile);
      }
    } else if (p.tiles > 1) {
      carry = Handover<Base>::of(p, direction, column).hand_over(k, from_lane(joined, stretches - 1));
    }
    if (piece < stretches) {
      shared.starts[piece][lane_column] =
          Base::advance(p, direction, column, carry, below, begin, mine < p.length ? mine : p.length);
    }
  }

  static EXPHIL_DEVICE void join(const Arguments& p, int direction, long long k, long long group_column,
                                 int stretches, Shared& shared) {
    if constexpr (Walk) {  // all columns; one outside the tensor is empty and reads nothing
      const int thread = static_cast<int>(threadIdx.y * 32 + threadIdx.x);
      const int c = thread / stretches;
      const long long column = group_column + c;
      join_column(p, direction, k, column < p.columns ? column : p.columns - 1, c, thread % stretches,
                  stretches, shared);
    } else {  // a hand-over needs a warp
      EXPHIL_UNROLL_NOT
      for (int c = static_cast<int>(threadIdx.y); c < Lanes; c += p.warps) {
        if (group_column + c >= p.columns) return;
        join_column(p, direction, k, group_column + c, c, static_cast<int>(threadIdx.x), stretches, shared);
      }
    }
  }

  static EXPHIL_DEVICE void run_block(const Arguments& p) {
    __shared__ Shared shared;
    const int thread = static_cast<int>(threadIdx.y * 32 + threadIdx.x);
    const int lane_column = thread % Lanes, stretch = thread / Lanes;
    const int stretches = p.warps * 32 / Lanes;
    const auto groups = static_cast<unsigned>((p.columns + Lanes - 1) / Lanes);
    const unsigned first = Walk ? 0 : blockIdx.x / groups;
    const long long group_column = static_cast<long long>(blockIdx.x - first * groups) * Lanes;
    const int direction = p.first_direction + static_cast<int>(blockIdx.y);
    const bool inside = group_column + lane_column < p.columns;
    const Cursor cursor = cursor_at(p, direction, inside ? group_column + lane_column : p.columns - 1);
    const long long length = inside ? p.length : 0;

    long long begin = first * p.tile + stretch * Items;
    int count = count_of(begin, length);
    Piece piece;
    load(p, cursor, begin, count, &piece);
    EXPHIL_UNROLL_NOT
    for (long long k = first;; ++k) {
      [[maybe_unused]] Piece next;
      [[maybe_unused]] const int next_count = Walk ? count_of(begin + p.tile, length) : 0;
      if constexpr (Walk) load(p, cursor, begin + p.tile, next_count, &next);
      [[maybe_unused]] States states;
      load_states(p, cursor, begin, length, &states);
      shared.summaries[stretch][lane_column] = summary_of(piece);
      sync_block();
      join(p, direction, k, group_column, stretches, shared);
      sync_block();
      const State start = shared.starts[stretch][lane_column];
      if constexpr (Gradient) {
        store_gradients(p, direction, cursor, group_column + lane_column, begin, count, piece, states, start);
      } else {
        store(p, direction, cursor, begin, count, piece, start);
      }
      if constexpr (Walk) {
        if (k + 1 == p.tiles) return;
        piece = next;
        begin += p.tile;
        count = next_count;
      } else {
        return;
      }
    }
  }
};

}  // namespace associative
}  // namespace exphil
