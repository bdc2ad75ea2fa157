// How scan/backward.cu and scan/backward_local.cu divide their work, and their shared memory. All sizes are
// -D defines.
//
// A block takes CHANNEL_TILES * kTileChannels channels of one segment of SEGMENT steps, a tile of channels at
// a time. The LANES lanes of a column hold PER_LANE states each of its CHANNELS neighbouring channels. A
// segment is cut into pieces of STEPS steps, whose states a lane holds in registers.
#pragma once

#include "kernels/scan/backward_arguments.cuh"
#include "kernels/scan/backward_elements.cuh"
#include "kernels/scan/backward_numbers.cuh"

namespace exphil {
namespace scan {

constexpr auto kRule = static_cast<Discretization>(DISCRETIZATION);
#if COMPLEX
using Number = ComplexReal;
#else
using Number = Real;
#endif
using Rule = BackwardRule<kRule, Number>;
constexpr int kProjectionElement = COMPLEX ? device::kF32 : ELEMENT;

constexpr int kFloats = Rule::kFloats;
constexpr int kLanes = LANES, kPerLane = PER_LANE, kChannels = CHANNELS;
constexpr int kOwn = kChannels * kPerLane;  // states of a lane
constexpr int kLaneRow = kPerLane * kFloats;
constexpr int kRow = kLanes * kLaneRow, kRowUsed = STATE * kFloats;
constexpr int kColumns = 32 / kLanes, kWarps = WARPS, kThreads = 32 * kWarps;
constexpr int kTileChannels = kWarps * kColumns * kChannels;
constexpr int kBlockChannels = CHANNEL_TILES * kTileChannels;
constexpr int kSegment = SEGMENT, kSteps = STEPS;
constexpr int kStaged = STAGED;  // steps of a segment whose streams are in shared memory at a time
constexpr int kPieces = (kSegment + kSteps - 1) / kSteps;
constexpr BackwardLayout kLayout{kSegment, kSteps,        kStaged, kTileChannels,
                                 kRow,     kOwn* kFloats, kWarps,  HAS_Z};
static_assert(kSegment % kSteps == 0, "a piece of a segment is whole");

struct Place : BlockPlace<long long> {
  int thread, warp, part;  // part: of a column, the lane's number in it
  int column;              // of the tile
  bool reverse;
  long long segment, start;  // start: its first step in scan order
  int steps;                 // of the segment that exist
  long long tile;            // first channel of the tile
  int tile_channels;         // of it that exist

  EXPHIL_DEVICE int local() const { return column * kChannels; }  // the first channel of the column
  EXPHIL_DEVICE bool has_channel(int c) const { return local() + c < tile_channels; }
  EXPHIL_DEVICE long long channel(int c) const { return tile + local() + c; }
  // The row of {batch, seq} of a step of the segment.
  EXPHIL_DEVICE long long row(const Arguments& p, long long step) const {
    return batch * p.seq + (reverse ? p.seq - 1 - start - step : start + step);
  }
};

struct Threads : ThreadLayout {
  static constexpr int kColumns = scan::kColumns, kColumnChannels = kChannels;
};
EXPHIL_DEVICE Place find_place(const Arguments& p) {
  Place s;
  static_cast<BlockPlace<long long>&>(s) = find_block<Threads>(p, kBlockChannels);
  s.warp = threadIdx.y, s.thread = threadIdx.x + 32 * threadIdx.y;
  s.part = threadIdx.x % kLanes, s.column = s.warp * kColumns + threadIdx.x / kLanes;
  s.reverse = p.reverse != 0;
  return s;
}
EXPHIL_DEVICE void enter_segment(Place& s, const Arguments& p, long long segment) {
  s.segment = segment, s.start = segment * kSegment;
  s.steps = static_cast<int>(min(static_cast<long long>(kSegment), p.seq - s.start));
}
// From the steps of the segment to kStaged of them at most, from step `first` on. False where there are none.
EXPHIL_DEVICE bool enter_staged(Place& s, const Arguments& p, int first) {
  enter_segment(s, p, s.segment);
  s.start += first, s.steps = min(kStaged, s.steps - first);
  return s.steps > 0;
}
EXPHIL_DEVICE void enter_tile(Place& s, int tile) {
  s.tile = s.first + tile * kTileChannels;
  s.tile_channels = min(kTileChannels, s.channels - tile * kTileChannels);
}

// A block's shared memory. Streams are {STAGED, kTileChannels}, rows {SEGMENT, kRow}.
struct Shared {
  float *dt, *v, *dy, *y;  // dt', dt' x, dL/d<C, h>; after a step v and dy hold the sums for dt and for dt' x
  float *b, *c;
  // {kWarps, kLayout.of_warp()}: states at the beginning of pieces (store_of_lane), and sums for b and c of
  // pieces, {STEPS, 2, kRow}.
  float* kept;
};
EXPHIL_DEVICE Shared find_shared(float4* memory) {
  float* at = reinterpret_cast<float*>(memory);
  const int stream = kLayout.stream();
  return {at,
          at + stream,
          at + 2 * stream,
          at + 3 * stream,
          at + kLayout.rows(),
          at + kLayout.rows() + kSegment * kRow,
          at + kLayout.kept()};
}

}  // namespace scan
}  // namespace exphil
