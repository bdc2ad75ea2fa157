// How blocks pass the state of a sequence on. Every block posts the Summary of its tile as soon as it is
// computed. Then it reads the earlier summaries of its window of tiles and the state that the previous window
// left, and combines them in an order that depends only on the tile's index. The order never depends on which
// results are ready, so the result does not depend on timing. A block waits only for blocks with a smaller
// blockIdx.x; GPUs start blocks in that order, and CUB's DeviceScan relies on it too.
//
// The posted words are never 0, and their memory is cleared to 0: a reader polls the words themselves,
// without a flag or a fence, which costs one round trip to the L2 instead of three.
#pragma once

#include "kernels/associative/device.cuh"

namespace exphil {
namespace associative {

// T as words that are not 0. Floats are inverted (one NaN pattern is replaced by another); integers are sent
// as halves, each with a set bit above it.
template <class T, bool Floats>
struct Wire {
  static constexpr int kPlain = sizeof(T) / 4;
  static constexpr int kWords = Floats ? kPlain : 2 * kPlain;

  static EXPHIL_DEVICE void post(const T& value, unsigned* to, long long stride) {
    unsigned bits[kPlain];
    memcpy(bits, &value, sizeof(T));
    EXPHIL_UNROLL
    for (int i = 0; i < kPlain; ++i) {
      if constexpr (Floats) {
        poke(to + i * stride, bits[i] == 0xffffffffu ? 0x80000000u : ~bits[i]);
      } else {
        poke(to + 2 * i * stride, (bits[i] & 0xffffu) | 0x10000u);
        poke(to + (2 * i + 1) * stride, (bits[i] >> 16) | 0x10000u);
      }
    }
  }

  static EXPHIL_DEVICE bool read(const unsigned* from, long long stride, unsigned (&words)[kWords]) {
    bool there = true;
    EXPHIL_UNROLL
    for (int i = 0; i < kWords; ++i) words[i] = peek(from + i * stride);
    EXPHIL_UNROLL
    for (int i = 0; i < kWords; ++i) there = there && words[i] != 0;
    return there;
  }

  static EXPHIL_DEVICE T value(const unsigned (&words)[kWords]) {
    unsigned bits[kPlain];
    EXPHIL_UNROLL
    for (int i = 0; i < kPlain; ++i) {
      if constexpr (Floats) {
        bits[i] = ~words[i];
      } else {
        bits[i] = (words[2 * i] & 0xffffu) | (words[2 * i + 1] << 16);
      }
    }
    T value;
    memcpy(&value, bits, sizeof(T));
    return value;
  }
};

// The hand-over of one chain: a direction and a column.
template <class Base>
struct Handover {
  using Math = typename Base::Math;
  using State = typename Base::State;
  using Summary = typename Base::Summary;
  using SummaryWire = Wire<Summary, Base::kFloats>;
  using StateWire = Wire<State, Base::kFloats>;
  static_assert(SummaryWire::kWords <= kSummaryWords && StateWire::kWords <= kStateWords, "plan's memory");

  const Arguments& p;
  int direction;
  long long column;
  unsigned* summaries;  // {words, tiles}
  unsigned* carries;    // {words, windows}
  long long windows;

  static EXPHIL_DEVICE Handover of(const Arguments& p, int direction, long long column) {
    const long long chains = static_cast<long long>(gridDim.y) * p.columns;
    const long long chain = static_cast<long long>(blockIdx.y) * p.columns + column;
    const long long windows = (p.tiles + kWindow - 1) / kWindow;
    return {p,
            direction,
            column,
            p.exchange + chain * p.tiles * SummaryWire::kWords,
            p.exchange + chains * p.tiles * SummaryWire::kWords + chain * windows * StateWire::kWords,
            windows};
  }

  // Four tiles per lane from `first` on, combined; tiles from `end` on count as empty.
  EXPHIL_DEVICE Summary summary_of(long long first, long long end) const {
    constexpr int kBatch = 4;
    const int lane = threadIdx.x;
    unsigned words[kBatch][SummaryWire::kWords];
    for (bool there = false; !there;) {
      there = true;
      EXPHIL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        const long long tile = first + 32 * i + lane;
        if (tile < end && !SummaryWire::read(summaries + tile, p.tiles, words[i])) there = false;
      }
      if (!there) wait_more();
    }
    sync_warp();
    Summary all = Math::identity();
    EXPHIL_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      if (first + 32 * i >= end) break;
      const Summary own = first + 32 * i + lane < end ? SummaryWire::value(words[i]) : Math::identity();
      const Summary joined = from_lane(joined_over_lanes<Math>(own, lane), 31);
      all = i == 0 ? joined : Math::compose(all, joined);
    }
    return all;
  }

  // The state before tile k; every lane of the calling warp gets the same.
  EXPHIL_DEVICE State look_back(long long k) const {
    const long long window = k / kWindow, first = window * kWindow;
    Summary all = Math::identity();
    EXPHIL_UNROLL_NOT
    for (long long from = first; from < k; from += 128) all = Math::compose(all, summary_of(from, k));
    State start = Base::first_state(p, column);
    if (window > 0) {
      unsigned words[StateWire::kWords];
      while (!StateWire::read(carries + window - 1, windows, words)) wait_more();
      sync_warp();
      start = StateWire::value(words);
    }
    State h = start;
    if (k == first || Math::apply(all, h)) return h;
    h = start;
    EXPHIL_UNROLL_NOT
    for (long long j = first; j < k; ++j) {
      unsigned words[SummaryWire::kWords];
      SummaryWire::read(summaries + j, p.tiles, words);
      h = Base::advance(p, direction, column, h, SummaryWire::value(words), j * p.tile, (j + 1) * p.tile);
    }
    return h;
  }

  // Posts tile k's summary, computes the state before it, and posts the state after it where a window ends.
  // Called by one warp.
  EXPHIL_DEVICE State hand_over(long long k, const Summary& total) const {
    const bool last = k + 1 == p.tiles;
    if (!last && threadIdx.x == 0) SummaryWire::post(total, summaries + k, p.tiles);
    const State carry = look_back(k);
    if (!last && (k + 1) % kWindow == 0) {
      const State after = Base::advance(p, direction, column, carry, total, k * p.tile, (k + 1) * p.tile);
      if (threadIdx.x == 0) StateWire::post(after, carries + k / kWindow, windows);
    }
    return carry;
  }
};

}  // namespace associative
}  // namespace exphil
