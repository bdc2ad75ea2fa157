// The scan of contiguous sequences (inner = 1). A warp reads 32 * Items consecutive elements, transposes them
// through shared memory so that each thread holds Items consecutive ones, and combines the threads' summaries
// by shuffles. One more warp of the block combines the warps' summaries and hands over between blocks. Each
// tensor is read once or written once. Instantiated by associative/scan.cu.
//
// Block {32, warps + 1}; grid {tiles * rows, directions}, tiles outermost.
#pragma once

#include "kernels/associative/handover.cuh"

namespace exphil {
namespace associative {

template <Op O, Element E, bool Compensated, int Items, bool Initial = false, bool Gradient = false>
struct Rows : Kit<O, E, Compensated, Initial, Gradient> {
  using Base = Kit<O, E, Compensated, Initial, Gradient>;
  using typename Base::Builder;
  using typename Base::Math;
  using typename Base::State;
  using typename Base::Store;
  using typename Base::Stored;
  using typename Base::Summary;
  using typename Base::Value;

  static constexpr int kWarpItems = 32 * Items;
  // One word of padding per thread avoids bank conflicts.
  static EXPHIL_DEVICE int padded(int i) { return i + i / Items; }

  // Transposes the warp's elements from consecutive lanes to consecutive items of one thread.
  static EXPHIL_DEVICE void turn(Value* warp_memory, Value (&values)[Items]) {
    const int lane = threadIdx.x;
    EXPHIL_UNROLL
    for (int i = 0; i < Items; ++i) warp_memory[padded(i * 32 + lane)] = values[i];
    sync_warp();
    EXPHIL_UNROLL
    for (int i = 0; i < Items; ++i) values[i] = warp_memory[lane * (Items + 1) + i];
    sync_warp();
  }

  static EXPHIL_DEVICE void load(const void* tensor, const Cursor& cursor, long long begin, long long length,
                                 Value (&values)[Items]) {
    const Stored* from = static_cast<const Stored*>(tensor) + cursor.start;
    EXPHIL_UNROLL
    for (int i = 0; i < Items; ++i) {
      const long long t = begin + i * 32 + threadIdx.x;
      values[i] = t < length && (!Gradient || t >= 0) ? Store::value(from[t * cursor.stride]) : Value();
    }
  }

  // Makes each entry of `totals` the summary of all earlier warps; returns the state before the tile.
  static EXPHIL_DEVICE State join_warps(const Arguments& p, int direction, long long k, long long row,
                                        Summary* totals) {
    const int lane = threadIdx.x;
    Summary own = lane < p.warps ? totals[lane] : Math::identity();
    own = joined_over_lanes<Math>(own, lane);
    const Summary total = from_lane(own, 31);
    const Summary below = lane_above(own, 1);
    sync_warp();
    if (lane < kMaxWarps) totals[lane] = lane == 0 ? Math::identity() : below;
    if (p.tiles == 1) return Base::first_state(p, row);
    return Handover<Base>::of(p, direction, row).hand_over(k, total);
  }

  // The work of one data warp.
  static EXPHIL_DEVICE void scan_stretch(const Arguments& p, int direction, long long k, long long row,
                                         Value* memory, Summary* totals, const State* tile_carry) {
    const int lane = threadIdx.x, warp = threadIdx.y;
    const Cursor cursor = cursor_at(p, direction, row);
    const long long tile_begin = k * p.tile;
    const long long warp_begin = tile_begin + warp * kWarpItems;
    const long long begin = warp_begin + lane * Items;
    Value a[Base::kHasDecay ? Items : 1], x[Items];
    [[maybe_unused]] Value before[Gradient ? Items : 1];  // the recurrence's states before the steps
    if constexpr (Base::kHasDecay) load(p.a, cursor, warp_begin - (Gradient ? 1 : 0), p.length, a);
    load(p.x, cursor, warp_begin, p.length, x);
    if constexpr (Gradient) load(p.h, cursor, warp_begin + 1, p.length, before);
    if constexpr (Base::kHasDecay) turn(memory, a);
    if constexpr (Gradient) {
      EXPHIL_UNROLL
      for (Value& decay : a) decay = conjugate(decay);
    }
    turn(memory, x);

    const int count = static_cast<int>(p.length - begin < Items ? p.length - begin : Items);
    Builder builder;
    EXPHIL_UNROLL
    for (int i = 0; i < Items; ++i) {
      if (i < count) builder.push(a[Base::kHasDecay ? i : 0], x[i]);
    }
    const Summary joined = joined_over_lanes<Math>(builder.finish(), lane);
    Summary below = lane_above(joined, 1);
    if (lane == 0) below = Math::identity();
    State h = Base::first_state(p, row);
    if (blockDim.y > 1) {
      if (lane == 31) totals[warp] = joined;
      sync_warps(blockDim.y);
      sync_warps(blockDim.y);
      h = Base::advance(p, direction, row, *tile_carry, totals[warp], tile_begin,
                        warp_begin < p.length ? warp_begin : p.length);
    }
    h = Base::advance(p, direction, row, h, below, warp_begin, begin < p.length ? begin : p.length);

    EXPHIL_UNROLL
    for (int i = 0; i < Items; ++i) {
      if (i < count) Math::step(h, a[Base::kHasDecay ? i : 0], x[i]);
      memory[lane * (Items + 1) + i] = Math::value(h);
    }
    sync_warp();
    const long long stride = forget(cursor.stride);
    Stored* y = Base::y_of(p, direction) + cursor.start;
    if constexpr (Gradient) {
      Stored* da = static_cast<Stored*>(p.da) + cursor.start;
      EXPHIL_UNROLL
      for (int i = 0; i < Items; ++i) {
        const long long at = (warp_begin + i * 32 + lane) * stride;
        if (warp_begin + i * 32 + lane >= p.length) continue;
        Base::store_gradients(y + at, da + at, memory[padded(i * 32 + lane)], before[i]);
      }
      const long long last = p.length - 1 - warp_begin;
      if (last >= 0 && last < kWarpItems && last % 32 == lane) {
        Base::store_last(p, cursor, row, memory[padded(static_cast<int>(last))]);
      }
    } else {
      EXPHIL_UNROLL
      for (int i = 0; i < Items; ++i) {
        const long long t = warp_begin + i * 32 + lane;
        if (t < p.length) Store::store(y + t * stride, memory[padded(i * 32 + lane)]);
      }
    }
  }

  static EXPHIL_DEVICE void run_block(const Arguments& p) {
    __shared__ Value memory[kMaxWarps][32 * (Items + 1)];
    __shared__ Summary totals[kMaxWarps];
    __shared__ State tile_carry;
    const int warp = threadIdx.y;
    const unsigned rows = static_cast<unsigned>(p.columns), tile = blockIdx.x / rows;
    const long long k = tile, row = blockIdx.x - tile * rows;
    const int direction = p.first_direction + static_cast<int>(blockIdx.y);
    if (warp == p.warps) {  // a separate warp, so that the others keep their elements in registers
      sync_warps(blockDim.y);
      const State carry = join_warps(p, direction, k, row, totals);
      if (threadIdx.x == 0) tile_carry = carry;
      sync_warps(blockDim.y);
      return;
    }
    scan_stretch(p, direction, k, row, memory[warp], totals, &tile_carry);
  }
};

}  // namespace associative
}  // namespace exphil
