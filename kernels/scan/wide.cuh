// The parts of scan/wide.cu: sizes, a block's shared memory, and a lane's data of its two channels. All sizes
// are -D defines; scan/wide.cu describes the scan.
#pragma once

#include "kernels/scan/frame.cuh"
#include "kernels/scan/reduce.cuh"

namespace exphil {
namespace scan_wide {

using namespace scan;

using Rule = RealRule<static_cast<Discretization>(DISCRETIZATION)>;

constexpr int kStates = 4;                                     // of a lane
constexpr int kLanes = STATE / kStates, kPairs = 32 / kLanes;  // lanes to a pair of channels, pairs to a warp
constexpr int kSteps = STEPS, kStages = STAGES;                // of a tile, of the ring of tiles
constexpr int kWarps = CHANNEL_WARPS, kThreads = 32 * kWarps;
constexpr int kColumns = kPairs * kWarps;                     // pairs of channels of a block
constexpr int kSumSteps = kLanes < kSteps ? kLanes : kSteps;  // steps whose sums are reduced together
constexpr int kElements = kSteps / kSumSteps;                 // pairs of y for each lane and tile
constexpr int kRows = 2 * kSteps * kLanes;                    // of b and of c, in fours

static_assert(kSteps % kSumSteps == 0, "a lane has as many steps of y as the others");
static_assert(kStages >= 3, "a tile is scanned, the next one activated, another one being copied");

constexpr long long kBytes = sizeof(Storage);

// One element each of two neighbouring channels.
struct alignas(2 * sizeof(Storage)) Pair {
  Storage first, second;
};

// A tile in its stored type, rows of b before those of c.
struct Stage {
  alignas(16) Pair x[kSteps * kColumns];
  alignas(16) Pair dt[kSteps * kColumns];
  alignas(16) Storage rows[4 * kRows];
};

struct Block {  // in shared memory
  Stage stages[kStages];
  float4 active[2][kSteps * kColumns];  // dt', v of the first channel, dt', v of the second
#if ELEMENT != 0
  float4 rows[2][kRows];  // as floats
#endif
};

static_assert(sizeof(Block) == wide_bytes(STATE, STEPS, CHANNEL_WARPS, STAGES, ELEMENT != 0),
              "the launcher reserves as much");

struct Place : ThreadPlace<long long> {
  int thread;                // of the block
  long long offset, stride;  // bytes to the block's first element of x, dt, z and y, and from step to step
};
struct Threads : ThreadLayout {
  static constexpr int kColumns = kPairs, kColumnChannels = 2;
  static constexpr bool kOneSpan = true;
};
EXPHIL_DEVICE Place find_place(const Arguments& p) {
  Place s{scan::find_place<Threads>(p, threadIdx.y, kWarps)};
  s.thread = threadIdx.x + 32 * threadIdx.y;
  s.offset = (s.row(p, 0) * p.dim + s.first) * kBytes;
  s.stride = s.step(p.dim) * kBytes;
  return s;
}

// `left` steps, limited to what a round of the loop over tiles looks ahead: an int.
EXPHIL_DEVICE int steps_ahead(long long left) {
  return left < kStages * kSteps ? static_cast<int>(left) : kStages * kSteps;
}

// A lane's data of its two channels.
struct Lane {
  Rule::Constants a[2][kStates];
  float d[2];
};
EXPHIL_DEVICE Lane load_lane(const Arguments& p, const Place& s) {
  Lane lane;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < kStates; ++n) {
      const float nothing = 0.0f;
      lane.a[r][n] =
          Rule::constants(s.live ? p.a + (s.channel + r) * STATE + s.part * kStates + n : &nothing);
    }
    lane.d[r] = HAS_D && s.live ? p.d[s.channel + r] : 0.0f;
  }
  return lane;
}

using States = float[2][kStates];

EXPHIL_DEVICE void load_states(const Arguments& p, const Place& s, States& h) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < kStates; ++n) {
      const long long at = (s.batch * p.dim + s.channel + r) * STATE + s.part * kStates + n;
      h[r][n] =
          p.initial_state != nullptr && s.live ? __fmul_rn(p.initial_state[at], Rule::kStateScale) : 0.0f;
    }
  }
}
// `to`: this lane's first state of the first channel.
EXPHIL_DEVICE void store_states(float* to, const States& h) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < kStates; ++n) to[r * STATE + n] = __fmul_rn(h[r][n], 1.0f / Rule::kStateScale);
  }
}

// The block's barrier.
EXPHIL_DEVICE void wait_for_block() {
  if constexpr (kWarps == 1) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

}  // namespace scan_wide
}  // namespace exphil
