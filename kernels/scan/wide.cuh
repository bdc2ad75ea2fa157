// What scan/wide.cu is made of: sizes, a block's shared memory, where a thread stands, what a lane
// keeps of its two channels. All sizes are -D defines; scan/wide.cu says how the scan goes.
#pragma once

#include "kernels/scan/elements.cuh"
#include "kernels/scan/reduce.cuh"

namespace exphil {
namespace scan_wide {

using namespace scan;

using Rule = RealRule<static_cast<Discretization>(DISCRETIZATION)>;

constexpr int kStates = 4;                                     // of a lane
constexpr int kLanes = STATE / kStates, kPairs = 32 / kLanes;  // lanes to a pair of channels, pairs to a warp
constexpr int kSteps = STEPS, kStages = STAGES;                // of a tile, of the ring of tiles
constexpr int kThreads = 32 * GROUPS, kColumns = kPairs * GROUPS;  // pairs of channels of a block
constexpr int kGroup = kLanes < kSteps ? kLanes : kSteps;          // steps whose sums are reduced together
constexpr int kElements = kSteps / kGroup;                         // pairs of y for each lane and tile
constexpr int kRows = 2 * kSteps * kLanes;                         // of b and of c, in fours

static_assert(kSteps % kGroup == 0, "lanes are dealt whole groups of steps");
static_assert(kStages >= 3, "a tile is scanned, the next one activated, another one on its way");

constexpr long long kBytes = sizeof(Storage);

struct alignas(2 * sizeof(Storage)) Two {
  Storage first, second;
};

// A tile as it arrives, rows of b before those of c.
struct Stage {
  alignas(16) Two x[kSteps * kColumns];
  alignas(16) Two dt[kSteps * kColumns];
  alignas(16) Storage rows[4 * kRows];
};

struct Block {  // in shared memory
  Stage stages[kStages];
  float4 active[2][kSteps * kColumns];  // dt', v of the first channel, dt', v of the second
#if ELEMENT != 0
  float4 rows[2][kRows];  // as floats
#endif
};

static_assert(sizeof(Block) == wide_bytes(STATE, STEPS, GROUPS, STAGES, ELEMENT != 0),
              "the launcher reserves as much");

// Where a thread stands. Offsets and strides of x, dt, z and y are in bytes.
struct Place {
  int thread, column, part;  // of the block; pair of channels; lane of the pair
  int channels;              // of the block that exist
  bool live, reverse;        // the lane's pair exists
  long long batch, first, channel;
  long long offset, stride;  // the block's first element, from one step to the next
};

__device__ __forceinline__ Place find_place(const Arguments& p) {
  Place s;
  s.thread = threadIdx.x + 32 * threadIdx.y;
  s.column = threadIdx.y * kPairs + threadIdx.x / kLanes, s.part = threadIdx.x % kLanes;
  const int in_batch = static_cast<int>(blockIdx.x % p.blocks_per_batch);
  s.batch = blockIdx.x / p.blocks_per_batch;
  // Divisions stand before the first copies: the usual single span goes without.
  const int span = p.blocks_per_span == p.blocks_per_batch ? 0 : in_batch / p.blocks_per_span;
  const long long skipped = static_cast<long long>(in_batch - span * p.blocks_per_span) * 2 * kColumns;
  const long long left = p.span_channels - skipped;
  s.channels = left < 2 * kColumns ? static_cast<int>(left) : 2 * kColumns;
  s.live = 2 * s.column < s.channels;
  s.first = static_cast<long long>(span) * p.span_channels + skipped;
  s.channel = s.first + 2 * s.column;
  s.reverse = (p.reverse != 0) != (blockIdx.y != 0);
  s.offset = ((s.batch * p.seq + (s.reverse ? p.seq - 1 : 0)) * p.dim + s.first) * kBytes;
  s.stride = (s.reverse ? -p.dim : p.dim) * kBytes;
  return s;
}

// `left` steps as far as a round of the loop over tiles looks ahead: an int.
__device__ __forceinline__ int steps_ahead(long long left) {
  return left < kStages * kSteps ? static_cast<int>(left) : kStages * kSteps;
}

// What a lane knows of its two channels.
struct Lane {
  Rule::Constants a[2][kStates];
  float d[2];
};
__device__ __forceinline__ Lane load_lane(const Arguments& p, const Place& s) {
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

__device__ __forceinline__ void load_states(const Arguments& p, const Place& s, States& h) {
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
__device__ __forceinline__ void store_states(float* to, const States& h) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < kStates; ++n) to[r * STATE + n] = __fmul_rn(h[r][n], 1.0f / Rule::kStateScale);
  }
}

// The block's one barrier.
__device__ __forceinline__ void wait_for_block() {
  if constexpr (GROUPS == 1) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

}  // namespace scan_wide
}  // namespace exphil
