// The first part of scan/chunked.cu: its sizes, all of them -D defines, a tile in shared memory, the position
// of a thread's work, and a lane's chunk of x, dt and y. The other parts: scan/chunked_copy.cuh,
// scan/chunked_states.cuh, scan/chunked_pass.cuh.
#pragma once

#include "kernels/scan/cluster.cuh"

namespace exphil {
namespace scan_chunked {

using namespace scan;

#if COMPLEX
using Rule = ComplexRule<static_cast<Discretization>(DISCRETIZATION)>;
#else
using Rule = RealRule<static_cast<Discretization>(DISCRETIZATION)>;
#endif
using State = Rule::State;
constexpr int kProjection = COMPLEX ? device::kF32 : ELEMENT;  // element type of b and c
using ProjectionStorage = device::StorageOf<kProjection>::Type;

constexpr int kFloats = Rule::kFloats;        // of a state
constexpr int kSteps = STEPS;                 // of a chunk, which is one lane's
constexpr int kChunks = CHUNKS;               // of a tile: lanes that follow each other in time
constexpr int kTile = kSteps * kChunks;       // steps of a tile, which is one warp's
constexpr int kChannels = 32 / kChunks;       // of a warp: lanes side by side
constexpr int kChannelWarps = CHANNEL_WARPS;  // warps of a block side by side in channels
constexpr int kTimeWarps = TIME_WARPS;        // and one after another in time
constexpr int kThreads = 32 * kChannelWarps;  // that share a tile of b and c
constexpr int kBlocks = CLUSTER_BLOCKS;       // of a cluster, one after another in time
constexpr int kTurns = kBlocks * kTimeWarps;  // warps that take a channel's tiles in turn
constexpr int kRound = kTurns * kTile;        // steps from a warp's tile to its next
constexpr int kBuffers = BUFFERS;             // 2: the next tile is copied during the scan of the current one
constexpr int kPassStates = STATES_PER_PASS;  // states that a lane scans at a time
constexpr int kStates = chunked_states(STATE, kPassStates);  // rounded up; the padding states stay zero
constexpr int kStagedStates = STAGED_STATES;                 // of b and c in shared memory at a time
constexpr int kProjections = !B_CONSTANT + !C_CONSTANT, kKept = kProjections > 0 ? kProjections : 1;

// A tile in shared memory. Parts of chunks that are read together are on different banks. A lane reads kAhead
// steps of kPassStates states of b and c at a time: half as many loads as row by row.
constexpr int kRow = kStagedStates * kFloats, kUnit = kPassStates * kFloats,
              kAhead = kUnit < 4 ? 4 / kUnit : 1;
constexpr int kUnitRows = chunked_unit(kUnit, kSteps), kRowChunk = chunked_row_chunk(kRow, kUnit, kSteps);
static_assert(kUnit == 1 || kUnit == 2 || kUnit == 4, "loads of 16 bytes at the most");
static_assert((kSteps & (kSteps - 1)) == 0 && (kChunks & (kChunks - 1)) == 0, "offsets add up");
// The offset of column k of row i of b or c.
EXPHIL_DEVICE int row_place(int i, int k) {
  return i / kSteps * kRowChunk + k / kUnit * kUnitRows + i % kSteps * kUnit + k % kUnit;
}
constexpr int kAcross = kChannelWarps * kChannels;  // elements of x in a row
constexpr int kElementGap =
    kChannels < 16 / static_cast<int>(sizeof(Storage)) ? 16 / static_cast<int>(sizeof(Storage)) : kChannels;
constexpr int kElementChunk = kSteps * kAcross + kElementGap;
EXPHIL_DEVICE int element_place(int i, int k) {
  return i * kAcross + i / kSteps * kElementGap + k;
}
struct alignas(16) Tile {
  float rows[kBuffers][kKept][kChunks * kRowChunk];
#if ELEMENT != 0
  ProjectionStorage raw[kKept][kTile * kRow];  // b and c in their stored type
#endif
  Storage x[kBuffers][kChunks * kElementChunk], dt[kBuffers][kChunks * kElementChunk];
};

struct Place : ThreadPlace<int> {
  int chunk, across;  // of the warp: the lane's in time, its channel
  int warp, time;     // of the block: side by side in channels, in time
  int thread;         // of those that share a tile
  int turn;           // the warp's among kTurns
  long long at;       // bytes to the thread's chunk of x, dt, z and y
};

// Bytes between rows of x, b or c; the planner leaves scans that exceed an int to scan/general.cu.
EXPHIL_DEVICE int row_step(const Place& s, long long elements, int size) {
  const int step = static_cast<int>(elements) * size;
  return s.reverse ? -step : step;
}
EXPHIL_DEVICE int element_step(const Arguments& p, const Place& s) {
  return row_step(s, p.dim, sizeof(Storage));
}
EXPHIL_DEVICE const char* offset(const void* data, long long bytes) {
  return static_cast<const char*>(data) + bytes;
}

struct Threads : ThreadLayout {
  using Index = int;
  static constexpr int kColumns = kChannels, kClusterBlocks = kBlocks;
  static constexpr bool kLanesInTime = true;
};
// Recomputed wherever it is needed: registers are scarce.
EXPHIL_DEVICE BlockPlace<int> find_block(const Arguments& p) {
  return scan::find_block<Threads>(p, kAcross);
}
EXPHIL_DEVICE int channel_of(const Arguments& p, const Place& s) {
  return find_block(p).first + s.column;
}

EXPHIL_DEVICE Place find_place(const Arguments& p) {
  Place s{scan::find_place<Threads>(p, threadIdx.y, kChannelWarps)};
  s.chunk = s.lane / kChannels, s.across = s.lane % kChannels;
  s.warp = threadIdx.y, s.time = threadIdx.z;
  s.thread = s.lane + 32 * s.warp;
  s.turn = blockIdx.x % kBlocks * kTimeWarps + s.time;
  const long long row = s.row(p, s.turn * kTile + s.chunk * kSteps);
  s.at = (row * p.dim + s.channel) * static_cast<int>(sizeof(Storage));
  return s;
}

// A barrier of the warps that share a tile.
EXPHIL_DEVICE void sync_tile(const Place& s) {
  if constexpr (kChannelWarps == 1) {
    __syncwarp();
  } else {
    device::barrier(1 + s.time, kThreads);
  }
}

// This lane's chunk of x or dt.
EXPHIL_DEVICE void load_elements(const Storage* from, const Place& s, float (&to)[kSteps]) {
  from += s.chunk * kElementChunk + s.column;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) to[i] = device::widen<ELEMENT>(from[i * kAcross]);
}

// Replaces dt by dt', and x by v; both zero beyond the sequence, which leaves a state unchanged.
EXPHIL_DEVICE void activate(const Arguments& p, int steps, float bias, float (&dt)[kSteps],
                            float (&v)[kSteps]) {
  if (SOFTPLUS || CLIP || p.dt_bias != nullptr) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) dt[i] = activate_dt(p, dt[i], bias);
  }
  if (steps < kSteps) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) dt[i] = i < steps ? dt[i] : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    if constexpr (!Rule::kPairHoldsX) v[i] = __fmul_rn(dt[i], v[i]);
    asm volatile("" : "+f"(v[i]));  // computed now, and not again for every state
  }
}

// Writes y = <C, h> + D x, times silu(z). Reads x again, which is not kept in registers.
EXPHIL_DEVICE void write(const Arguments& p, const Place& s, void* to, int steps, const float (&y)[kSteps]) {
  const float d = HAS_D && s.live ? p.d[channel_of(p, s)] : 0.0f;
  const int step = element_step(p, s);
  long long at = s.at;
#pragma unroll
  for (int i = 0; i < kSteps; ++i, at += step) {
    if (i >= steps) continue;
    Storage x{}, z{};
    if (HAS_D) x = *reinterpret_cast<const Storage*>(offset(p.x, at));
    if (HAS_Z) z = *reinterpret_cast<const Storage*>(offset(p.z, at));
    *reinterpret_cast<Storage*>(const_cast<char*>(offset(to, at))) = finish<Rule>(y[i], x, z, d);
  }
}

}  // namespace scan_chunked
}  // namespace exphil
