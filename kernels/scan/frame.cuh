// Shared by all scan kernels: the position of a thread's work, how a block's threads share the copy of a
// tile, dt' from dt, and y from <C, h>. The options are -D defines (ELEMENT, SOFTPLUS, CLIP, HAS_D, HAS_Z).
// Included by the scan kernels only; a field that a kernel does not read costs it nothing.
#pragma once

#include "kernels/common/device_memory.cuh"
#include "kernels/scan/arguments.cuh"
#include "kernels/scan/rules.cuh"

namespace exphil {
namespace scan {

using Storage = device::StorageOf<ELEMENT>::Type;

// How a kernel assigns its threads. A column is one channel, or several neighbouring ones of the same lane.
// The lanes of a column are neighbours where they share its states, and kColumns apart where they follow each
// other in time. Index holds a channel or a sequence: an int where the launcher ensures that it fits, which
// saves registers. A kernel's own layout has what differs from this one.
struct ThreadLayout {
  using Index = long long;
  static constexpr int kColumns = 1;         // of a warp
  static constexpr int kColumnChannels = 1;  // channels of a column
  static constexpr bool kLanesInTime = false;
  static constexpr int kClusterBlocks = 1;  // blocks that share the same channels
  static constexpr bool kOneSpan = false;   // a single span is worth a branch
};

// The sequence and the channels of a block. No block crosses the end of a span (see Arguments).
template <class Index>
struct BlockPlace {
  Index batch, first;  // sequence, first channel
  int channels;        // existing channels of the block
};
// `most`: channels of a full block.
template <class Layout>
EXPHIL_DEVICE BlockPlace<typename Layout::Index> find_block(const Arguments& p, int most) {
  using Index = typename Layout::Index;
  const unsigned block = blockIdx.x / Layout::kClusterBlocks;
  const unsigned in_batch = block % p.blocks_per_batch;
  // The division delays the first copy: with kOneSpan the usual case of one span skips it.
  const bool only = Layout::kOneSpan && p.blocks_per_span == p.blocks_per_batch;
  const unsigned span = only ? 0 : in_batch / p.blocks_per_span;
  const Index first = static_cast<Index>(span * static_cast<unsigned>(p.span_channels) +
                                         in_batch % p.blocks_per_span * static_cast<unsigned>(most));
  const Index left = static_cast<Index>(span + 1) * static_cast<Index>(p.span_channels) - first;
  return {static_cast<Index>(block / p.blocks_per_batch), first, left < most ? static_cast<int>(left) : most};
}

// The position of a thread's work.
template <class Index>
struct ThreadPlace : BlockPlace<Index> {
  int lane;            // of the warp
  int part;            // of the column, among the lanes that share it
  int column;          // of the block
  bool live, reverse;  // live: the column's channels exist
  Index channel;       // the first of the column

  // The row of {batch, seq} at `position` in scan order.
  EXPHIL_DEVICE long long row(const Arguments& p, Index position) const {
    return static_cast<long long>(this->batch) * p.seq +
           (reverse ? p.seq - 1 - position : static_cast<long long>(position));
  }
  // Elements from a row of {batch, seq, size} to the next in scan order.
  EXPHIL_DEVICE long long step(long long size) const { return reverse ? -size : size; }
};
// warp: among the block's `warps` side by side in channels.
template <class Layout>
EXPHIL_DEVICE ThreadPlace<typename Layout::Index> find_place(const Arguments& p, int warp, int warps) {
  constexpr int kLanes = 32 / Layout::kColumns;
  ThreadPlace<typename Layout::Index> s;
  static_cast<BlockPlace<typename Layout::Index>&>(s) =
      find_block<Layout>(p, warps * Layout::kColumns * Layout::kColumnChannels);
  s.lane = threadIdx.x;
  s.part = Layout::kLanesInTime ? s.lane / Layout::kColumns : s.lane % kLanes;
  s.column = warp * Layout::kColumns + (Layout::kLanesInTime ? s.lane % Layout::kColumns : s.lane / kLanes);
  s.live = s.column * Layout::kColumnChannels < s.channels;
  s.channel = s.first + s.column * Layout::kColumnChannels;
  s.reverse = (p.reverse != 0) != (blockIdx.y != 0);
  return s;
}

// y of the block's direction; null where it is not computed.
EXPHIL_DEVICE void* find_output(const Arguments& p) {
  return blockIdx.y == 0 ? p.y : p.y_reverse;
}

// How `Count` threads share the copy of `Rows` rows of `Pieces` pieces of `Size` elements: piece by piece,
// row after row, kRows rows in a round, or a row in kRounds rounds where there are more pieces than threads.
template <int Count, int Rows, int Pieces, int Size>
struct Share {
  static constexpr bool kRowsFit = Count >= Pieces;  // at least one full row per round
  static constexpr int kRows = kRowsFit ? Count / Pieces : 1;
  // Whether the offset of a round is the first offset plus a constant.
  static constexpr bool kAdds = (kRows & (kRows - 1)) == 0;
  static constexpr int kRounds = kRowsFit ? (Rows + kRows - 1) / kRows : (Pieces + Count - 1) / Count;
  static EXPHIL_DEVICE int row(int thread) { return kRowsFit ? thread / Pieces : 0; }
  static EXPHIL_DEVICE int column(int thread) { return (kRowsFit ? thread % Pieces : thread) * Size; }
  // visit(i, k) for each piece of the thread: in row row() + i, at element column() + k.
  template <class Visit>
  static EXPHIL_DEVICE void visit_all(int thread, Visit visit) {
#pragma unroll
    for (int i = 0; i < Rows; i += kRows) {
#pragma unroll
      for (int k = 0; k < (kRowsFit ? 1 : kRounds); ++k) {
        const bool spare = (Count % Pieces != 0 && row(thread) >= kRows) ||
                           (i + kRows > Rows && i + row(thread) >= Rows) ||
                           (!kRowsFit && column(thread) + k * Count * Size >= Pieces * Size);
        if (!spare) visit(i, k * Count * Size);
      }
    }
  }
};

// dt' = clip(softplus(dt + bias)).
EXPHIL_DEVICE float activate_dt(const Arguments& p, float dt, float bias) {
#if CLIP
  return formulas::activate_dt<device::Math>(device::Real{dt}, device::Real{bias}, SOFTPLUS,
                                             device::Real{p.dt_min}, device::Real{p.dt_max})
      .v;
#else
  const device::Real biased = device::Real{dt} + device::Real{bias};
  return SOFTPLUS ? formulas::softplus<device::Math>(biased).v : biased.v;
#endif
}

// y = (<C, h> + D x) silu(z), rounded to the caller's type; x is read only with D, z only with a gate.
EXPHIL_DEVICE Storage finish(float read_out, Storage x, Storage z, float d) {
  float value = read_out;
#if HAS_D
  value = __fmaf_rn(d, device::widen<ELEMENT>(x), value);
#endif
#if HAS_Z
  value = __fmul_rn(value, device::silu(device::widen<ELEMENT>(z)));
#endif
  return device::narrow<ELEMENT>(value);
}
// The same from a sum over states as stored by `Rule`.
template <class Rule>
EXPHIL_DEVICE Storage finish(float sum, Storage x, Storage z, float d) {
  return finish(Rule::kReadOutScale == 1.0f ? sum : __fmul_rn(sum, Rule::kReadOutScale), x, z, d);
}

}  // namespace scan
}  // namespace exphil
