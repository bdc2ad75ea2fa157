// The scan of sequences that lie side by side (inner > 1): a lane is a column, so that a warp's accesses are
// coalesced; a warp holds `Items` steps of 32 columns in registers, a block `warps` such stretches one after
// the other in time, and one more warp hands over between blocks. The tensor is read once and written once.
// Instantiated by associative_scan.cu.
//
// Block {32, warps + 1}; grid {tiles * groups, directions}, tiles outermost, so that the summaries a block
// waits for were published long ago.
#pragma once

#include "associative_device.cuh"

namespace exphil {
namespace associative {

template <Op O, Element E, bool Compensated, int Items>
struct Columns : Kit<O, E, Compensated> {
  using Base = Kit<O, E, Compensated>;
  using typename Base::Builder;
  using typename Base::Math;
  using typename Base::State;
  using typename Base::Store;
  using typename Base::Stored;
  using typename Base::Summary;
  using typename Base::Value;
  using Handover = Chain<State, Summary>;

  // The state before tile k, for this lane's column. One warp calls it.
  static EXPHIL_DEVICE State look_back(const Arguments& p, const Handover& chain, long long k,
                                       const Cursor& cursor) {
    const int lane = threadIdx.x;
    const long long window = k / kColumnWindow;
    const long long first = window * kColumnWindow;
    const int count = static_cast<int>(k - first);
    if (lane < count) wait_for(chain.tile_flags + first + lane);
    if (lane == 31 && window > 0)
      wait_for(chain.window_flags + window - 1);  // lane 31 has no tile to wait for
    sync_warp();
    State h = Math::initial();
    if (window > 0) h = chain.carries[(window - 1) * kColumnLanes + lane];
    constexpr int kBatch = sizeof(Summary) <= 8 ? 8 : 4;  // loads in flight
    for (int start = 0; start < count; start += kBatch) {
      Summary batch[kBatch];
      EXPHIL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        if (start + i < count) batch[i] = chain.summaries[(first + start + i) * kColumnLanes + lane];
      }
      EXPHIL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        const long long from = (first + start + i) * p.tile;
        if (start + i < count) Base::advance(p, cursor, &h, batch[i], from, from + p.tile);
      }
    }
    return h;
  }

  // Publishes this tile's summary, finds the state before it, and hands the state after it on where a window
  // ends. One warp calls it.
  static EXPHIL_DEVICE State hand_over(const Arguments& p, long long k, const Summary (*summaries)[32],
                                       const Handover& chain, const Cursor& cursor) {
    const int lane = threadIdx.x;
    const bool last = k + 1 == p.tiles;
    Summary total = summaries[0][lane];
    if (!last) {
      for (int w = 1; w < p.warps; ++w) total = Math::compose(total, summaries[w][lane]);
      chain.summaries[k * kColumnLanes + lane] = total;
      sync_warp();
      if (lane == 0) raise_flag(chain.tile_flags + k);
    }
    const State carry = look_back(p, chain, k, cursor);
    if (!last && (k + 1) % kColumnWindow == 0) {
      State after = carry;
      Base::advance(p, cursor, &after, total, k * p.tile, (k + 1) * p.tile);
      chain.carries[k / kColumnWindow * kColumnLanes + lane] = after;
      sync_warp();
      if (lane == 0) raise_flag(chain.window_flags + k / kColumnWindow);
    }
    return carry;
  }

  // The part of one data warp.
  static EXPHIL_DEVICE void scan_stretch(const Arguments& p, int direction, long long k, const Cursor& cursor,
                                         long long length, Summary (*summaries)[32], const State* carries) {
    const int lane = threadIdx.x, warp = threadIdx.y;
    const long long begin = k * p.tile + warp * Items;
    Value a[Base::kHasDecay ? Items : 1], x[Items];
    EXPHIL_UNROLL
    for (int i = 0; i < Items; ++i) {
      if (begin + i >= length) continue;
      if constexpr (Base::kHasDecay) a[i] = Base::a_at(p, cursor, begin + i);
      x[i] = Base::x_at(p, cursor, begin + i);
    }
    State h = Math::initial();
    if (blockDim.y > 1) {
      Builder builder;
      EXPHIL_UNROLL
      for (int i = 0; i < Items; ++i) {
        if (begin + i < length) builder.push(a[Base::kHasDecay ? i : 0], x[i]);
      }
      summaries[warp][lane] = builder.finish();
      sync_block();
      sync_block();
      h = carries[lane];
      EXPHIL_UNROLL_NOT
      for (int w = 0; w < warp; ++w) {
        const long long from = k * p.tile + w * Items;
        Base::advance(p, cursor, &h, summaries[w][lane], from, from + Items < length ? from + Items : length);
      }
    }
    const int count = static_cast<int>(length - begin < Items ? length - begin : Items);
    const long long stride = forget(cursor.stride);
    Stored* y = Base::y_of(p, direction) + cursor.start + begin * stride;
    EXPHIL_UNROLL
    for (int i = 0; i < Items; ++i, y += stride) {
      if (i >= count) continue;
      Math::step(h, a[Base::kHasDecay ? i : 0], x[i]);
      Store::store(y, Math::value(h));
    }
  }

  static EXPHIL_DEVICE void run_block(const Arguments& p) {
    __shared__ Summary summaries[kMaxWarps][32];
    __shared__ State carries[32];
    const int lane = threadIdx.x, warp = threadIdx.y;
    const long long groups = (p.columns + 31) / 32;
    const long long k = blockIdx.x / groups, group = blockIdx.x - k * groups;
    const int direction = p.first_direction + static_cast<int>(blockIdx.y);
    // A lane beyond the last column takes part in the hand-over with an empty sequence.
    const long long column = group * 32 + lane;
    const bool inside = column < p.columns;
    const Cursor cursor = cursor_at(p, direction, inside ? column : p.columns - 1);
    const long long length = inside ? p.length : 0;

    if (warp == p.warps) {  // a warp of its own: the others keep their elements in registers meanwhile
      sync_block();
      State carry = Math::initial();
      if (p.tiles > 1) {
        const long long chain = blockIdx.y * groups + group;
        carry = hand_over(p, k, summaries,
                          chain_at<State, Summary>(p, chain, gridDim.y * groups, kColumnLanes, kColumnWindow),
                          cursor);
      }
      carries[lane] = carry;
      sync_block();
      return;
    }
    scan_stretch(p, direction, k, cursor, length, summaries, carries);
  }
};

}  // namespace associative
}  // namespace exphil
