// The selective scan parallel in time, for every problem but a full matrix A. Launched by
// c_src/cuda/scan/forward.cpp.
//
// A warp has a tile of kTile consecutive steps of a few neighbouring channels: kChunks lanes follow each
// other in time with kSteps steps each, and 32 / kChunks lanes are side by side in channels. dt', v and y of
// a lane's chunk stay in registers for all states, which are processed kPassStates at a time:
//
//   1. the chunk is scanned from a zero state; its decays and inputs are kept for step 3;
//   2. the chunks' (decay, end) pairs are combined over the lanes (Kogge and Stone's tree) with the state
//      carried into the tile, which gives each lane the state before its chunk;
//   3. the recurrence runs again from that state, two instructions for each step: h, then y += C h.
//
// y needs no sum over lanes, and states that are processed together hide each other's shuffle latency. A
// state and step costs 5 multiplications and additions beside the exponential, which on an H200 occupies the
// fused multiply-add pipe for 3.7 more cycles (bench/results/gpu_scan.md).
//
// Warps take tiles in turn: the TIME_WARPS warps of a block, which follow each other in time, and where few
// channels would not fill the device also the CLUSTER_BLOCKS blocks of a cluster. States pass through shared
// memory, the next block's if necessary. CHANNEL_WARPS warps side by side share tiles of b and c. The bits
// depend on kSteps and kChunks, not on CHANNEL_WARPS, TIME_WARPS, CLUSTER_BLOCKS and STATES_PER_PASS.
//
// Grid: x = batch * blocks of channels * CLUSTER_BLOCKS, y = directions. Arguments as in scan/general.cu.
#include "kernels/scan/chunked_copy.cuh"
#include "kernels/scan/chunked_pass.cuh"

namespace {

using namespace exphil;
using namespace exphil::scan_chunked;

// Loads of a block before its first tile: constants of A, and the states carried into it. look_up() loads a
// warp's i-th number and later numbers; begin() stores them.
struct Start {
  Rule::Constants a;
  State h;
};
__device__ __forceinline__ Start look_up(const Arguments& p, const Place& s, int i) {
  const BlockPlace<int> block = find_block(p);
  const int n = i / kChannels, in_block = s.warp * kChannels + i % kChannels;
  const bool live = n < STATE && in_block < s.channels;
  const float nothing[2] = {0.0f, 0.0f};
  const long long channel = block.first + in_block;
  const long long at = ((block.batch * p.dim + channel) * STATE + n) * kFloats;
  Start start{Rule::constants(live ? p.a + (channel * STATE + n) * kFloats : nothing), State{}};
  if (live && s.turn == 0 && p.initial_state != nullptr) start.h = load_state(p.initial_state + at);
  if (p.seq == 0 && live && s.turn == 0 && p.final_state != nullptr) store_state(p.final_state + at, start.h);
  return start;
}
__device__ __forceinline__ void begin(const Arguments& p, const Place& s, Start start, Carried* own,
                                      Rule::Constants* constants) {
  const unsigned tile = s.turn == 0 ? 0 : ~0u;  // no tile has the number -1
#pragma unroll 1
  for (int i = s.lane; i < kStates * kChannels; i += 32) {
    if (i >= 32) start = look_up(p, s, i);
    const int n = i / kChannels, slot = n / kPassStates * kChannels + i % kChannels;
    if (s.time == 0) constants[slot * kPassStates + n % kPassStates] = start.a;
    const Address word = shared_address(own[slot].of + n % kPassStates * kFloats, blockIdx.x % kBlocks);
#if COMPLEX
    send(word, start.h.x, tile), send(word + 8, start.h.y, tile);
#else
    send(word, start.h, tile);
#endif
  }
}
__device__ __forceinline__ void store_final(const Arguments& p, const Place& s, const Carried* after) {
  const BlockPlace<int> block = find_block(p);
#pragma unroll 1
  for (int i = s.lane; i < STATE * kChannels; i += 32) {
    const int n = i / kChannels, in_warp = i % kChannels, in_block = s.warp * kChannels + in_warp;
    if (in_block >= s.channels) continue;
    const Word* const word = after[n / kPassStates * kChannels + in_warp].of + n % kPassStates * kFloats;
    float both[kFloats];
    for (int f = 0; f < kFloats; ++f) both[f] = __uint_as_float(static_cast<unsigned>(peek(word + f)));
    store_state(p.final_state + ((block.batch * p.dim + block.first + in_block) * STATE + n) * kFloats,
                make_state(both));
  }
}

// A block's view of its shared memory.
struct Shared {
  Tile* tile;                  // of this warp in time
  Carried* own;                // the states carried into this warp's tile
  Address next;                // of those carried into the next tile
  Rule::Constants* constants;  // of this warp's channels
};
constexpr int kSlots = kStates / kPassStates * kChannels;  // of a warp
__device__ __forceinline__ Shared find_shared(const Place& s, void* memory) {
  static_assert(
      kTimeWarps * (sizeof(Tile) + kChannelWarps * kSlots * sizeof(Carried)) +
              kChannelWarps * kSlots * kPassStates * sizeof(Rule::Constants) ==
          chunked_bytes(STATE, STATES_PER_PASS, STAGED_STATES, kFloats, DISCRETIZATION == 1, kSteps, kChunks,
                        kChannelWarps, kTimeWarps, kBuffers, kProjections, sizeof(Storage)),
      "the launcher reserves as much");
  Tile* const tiles = static_cast<Tile*>(memory);
  Carried* const carried = reinterpret_cast<Carried*>(tiles + kTimeWarps);
  const bool last = s.time + 1 == kTimeWarps;  // the block's last warp in time
  Carried* const next = carried + ((last ? 0 : s.time + 1) * kChannelWarps + s.warp) * kSlots;
  return {tiles + s.time, carried + (s.time * kChannelWarps + s.warp) * kSlots,
          shared_address(next, (blockIdx.x + (last ? 1 : 0)) % kBlocks),
          reinterpret_cast<Rule::Constants*>(carried + kTimeWarps * kChannelWarps * kSlots) +
              s.warp * kSlots * kPassStates};
}

// Starts copying the initial data of a tile; `left` steps remain from its start to the end of the sequence.
__device__ __forceinline__ void start_tile(const Arguments& p, const Place& s, const Cursor& cursor, int left,
                                           int parity, Tile& tile) {
  const int rows = left < kTile ? left : kTile;
  start_rows(p, s, cursor, 0, rows, parity, tile);
  start_elements(p, s, offset(p.dt, cursor.x), rows, tile.dt[parity]);
  start_elements(p, s, offset(p.x, cursor.x), rows, tile.x[parity]);
}

}  // namespace

#if CLUSTER_BLOCKS > 1
#define CLUSTER __cluster_dims__(CLUSTER_BLOCKS, 1, 1)
#else
#define CLUSTER
#endif
extern "C" __global__ void CLUSTER __launch_bounds__(32 * CHANNEL_WARPS * TIME_WARPS, MIN_BLOCKS)
    selective_scan_chunked(const __grid_constant__ exphil::scan::Arguments p) {
  extern __shared__ float4 shared_memory[];
  Place s = find_place(p);
  const Shared shared = find_shared(s, shared_memory);
  Tile& at = *shared.tile;
  int left = static_cast<int>(p.seq) - s.turn * kTile;  // steps from this warp's tile on
  Cursor cursor = find_cursor(p, s);
  const Start start = look_up(p, s, s.lane);  // a lane without a number loads a spare one
  if (left > 0) start_tile(p, s, cursor, left, 0, at);
  begin(p, s, start, shared.own, shared.constants);
  sync_all();
  const bool ladder = is_ladder(s, shared.constants);

  int parity = 0;  // of the buffers that are read
  for (unsigned tile = s.turn; left > 0; tile += kTurns, left -= kRound) {
    const int of_chunk = s.live ? left - s.chunk * kSteps : 0;
    const int steps = of_chunk < kSteps ? of_chunk : kSteps;  // not positive: nothing
    float dt[kSteps], v[kSteps], y[kSteps], sum_dt = 0.0f;
    Scanned x[kPassStates];
#pragma unroll 1
    for (int first = 0; first < kStates; first += kStagedStates) {
      if (kBuffers == 1 || tile < kTurns && first == 0) {
        device::copies_done();
        finish_rows(s, parity, at);
      }
      sync_tile(s);  // the tile has been copied, and the previous one has been read
      if (first == 0) {
        load_elements(at.dt[parity], s, dt);
        load_elements(at.x[parity], s, v);
        activate(p, steps, p.dt_bias != nullptr && s.live ? p.dt_bias[channel_of(p, s)] : 0.0f, dt, v);
#pragma unroll
        for (int i = 0; i < kSteps; ++i) sum_dt = __fadd_rn(sum_dt, dt[i]), y[i] = 0.0f;
        if (kHasPowers && ladder) begin_powers(dt, x);
      }
      const auto start_next = [&] {
        if (first + kStagedStates < kStates) {
          start_rows(p, s, cursor, first + kStagedStates, left < kTile ? left : kTile,
                     parity ^ (kBuffers - 1), at);
        } else if (left > kRound) {
          advance(p, s, cursor);
          start_tile(p, s, cursor, left - kRound, parity ^ (kBuffers - 1), at);
        }
      };
      if (kBuffers == 2) start_next();
      const float* rows = at.rows[parity][0] + s.chunk * kRowChunk;
      constexpr int kToC = (kKept - 1) * kChunks * kRowChunk;  // from a row of b to that of c
      const int end = first + kStagedStates < kStates ? first + kStagedStates : kStates;
      int slot = first / kPassStates * kChannels + s.across;
      // The last states stay in this warp, which has already read its own.
      const Address to = left <= kTile ? shared_address(shared.own, blockIdx.x % kBlocks) : shared.next;
#pragma unroll 1
      for (int n = first; n < end; n += kPassStates, rows += kUnitRows, slot += kChannels) {
        Rule::Constants a[kPassStates];
        State constant[kPassStates] = {};
#pragma unroll
        for (int u = 0; u < kPassStates; ++u) a[u] = shared.constants[slot * kPassStates + u];
        if (B_CONSTANT) load_constant(p, p.b, s, n, constant);
        if (kHasPowers && ladder) {
          scan_chunk<kHasPowers>(a, dt, v, sum_dt, rows, constant, x);
        } else {
          scan_chunk<false>(a, dt, v, sum_dt, rows, constant, x);
        }
        combine(s, shared.own + slot, to + slot * static_cast<int>(sizeof(Carried)), tile, x);
        if (C_CONSTANT) load_constant(p, p.c, s, n, constant);
        read_out(p, s, n, steps, rows + kToC, constant, x, y);
      }
      parity ^= kBuffers - 1;
      if (kBuffers == 1) {
        sync_tile(s);
        start_next();
      } else {
        device::copies_done();
        finish_rows(s, parity, at);
      }
    }
    void* const y_all = find_output(p);
    if (y_all != nullptr) write(p, s, y_all, steps, y);
    if (left <= kTile && p.final_state != nullptr && blockIdx.y == 0) {
      __syncwarp();
      store_final(p, s, shared.own);
    }
    s.at += static_cast<long long>(kRound) * element_step(p, s);
  }
  if (kBlocks > 1) sync_all();  // no block leaves while states may still arrive
}
