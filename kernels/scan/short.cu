// The selective scan of short sequences with few channels, where only the latency up to the last step counts:
// a cluster of CLUSTER_BLOCKS blocks scans the sequence in a single pass, kTile steps per block. zoh and
// bilinear, real A, b and c per step, states in multiples of eight. c_src/cuda/scan/short.cpp selects the
// scans for this kernel; scan/chunked.cu handles the others that are parallel in time, tile after tile.
//
// kChunks lanes follow each other in time with kSteps steps of a channel each, 32 / kChunks lanes are side by
// side in channels, and kParts warps share the states of a channel, so that a lane has the decays of all its
// steps in registers:
//
//   1. each lane scans its chunk from a zero state;
//   2. the chunks are combined over the lanes, and the effect of the block's steps on each state, its
//      Summary, is sent directly to every later block: one transfer, where passing the state from block to
//      block takes seven;
//   3. each warp applies the summaries of the earlier blocks to its states, and each lane scans again from
//      the state before its chunk, summing y over its states; the warps' sums are added in shared memory.
//
// On an H200 1x1024x256x16 takes 11.2 us, and 12.8 with the chunked kernel. An empty kernel takes 2.75 us in
// the same measurement, and a kernel that only moves the bytes 4.75. Grid: x = batch * blocks of channels *
// CLUSTER_BLOCKS, y = directions. Arguments as in scan/general.cu. The bits do not depend on CHANNEL_WARPS.
#include "kernels/scan/short.cuh"

namespace {

using namespace exphil;
using namespace exphil::scan_short;

// A lane's chunk of one channel, and its states.
struct Lane {
  Rule::Constants a[kStates];
  float dt[kSteps], v[kSteps], decay[kSteps][kStates];
  float total[kStates], end[kStates];
};

__device__ __forceinline__ void load_constants(const Arguments& p, const Place& s, Lane& x) {
  const float nothing = 0.0f;
#pragma unroll
  for (int n = 0; n < kStates; ++n) {
    const long long at = s.channel * STATE + s.part * kStates + n;
    x.a[n] = Rule::constants(s.live ? p.a + at : &nothing);
  }
}

// dt' and v; both zero beyond the sequence, which leaves a state unchanged.
__device__ __forceinline__ void load_elements(const Arguments& p, const Place& s, const Shared& shared,
                                              Lane& x) {
  const float bias = p.dt_bias != nullptr && s.live ? p.dt_bias[s.channel] : 0.0f;
  const int from = s.chunk * kElementChunk + s.column;
  const int steps = s.live ? s.steps - s.chunk * kSteps : 0;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const float dt = activate_dt(p, device::widen<ELEMENT>(shared.dt[from + i * kAcross]), bias);
    const float raw = device::widen<ELEMENT>(shared.x[from + i * kAcross]);
    x.dt[i] = i < steps ? dt : 0.0f;
    x.v[i] = Rule::kPairHoldsX ? raw : __fmul_rn(x.dt[i], raw);
  }
}

// b or c of one step, for this lane's states.
__device__ __forceinline__ void load_row(const float* rows, const Place& s, int step, float (&to)[kStates]) {
  device::load_floats(rows + s.chunk * kRowChunk + step * STATE + s.part * kStates, to);
}

// 1: the chunk from a zero state.
__device__ __forceinline__ void scan_chunk(const Place& s, const Shared& shared, Lane& x) {
  float sum_dt = 0.0f;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const Rule::Step common = Rule::step(x.dt[i], x.v[i]);
    float b[kStates];
    load_row(shared.b, s, i, b);
    sum_dt = __fadd_rn(sum_dt, x.dt[i]);
#pragma unroll
    for (int n = 0; n < kStates; ++n) {
      const float decay = Rule::decay(x.a[n], common), input = Rule::input(x.a[n], common, decay, b[n]);
      x.decay[i][n] = decay;
      x.end[n] = i == 0 ? Rule::start(decay, input) : Rule::advance(x.end[n], decay, input);
      if constexpr (!Rule::kDecayFromSum) {
        x.total[n] = Rule::multiply_decay(i == 0 ? Rule::one() : x.total[n], decay);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kStates; ++n) {
    if constexpr (Rule::kDecayFromSum) x.total[n] = Rule::total_decay(x.a[n], sum_dt);
  }
}

// 2: makes every lane's total and end cumulative from the block's first step (Kogge and Stone's tree), and
// sends the last chunk's to this block and the later ones, chunk by chunk of lanes.
__device__ __forceinline__ void combine(const Place& s, Lane& x) {
#pragma unroll
  for (int by = 1; by < kChunks; by *= 2) {
#pragma unroll
    for (int n = 0; n < kStates; ++n) {
      const float end = __shfl_up_sync(0xffffffffu, x.end[n], by * kChannels);
      const float total = __shfl_up_sync(0xffffffffu, x.total[n], by * kChannels);
      if (s.chunk >= by) {
        x.end[n] = Rule::carry(end, x.total[n], x.end[n]);
        x.total[n] = Rule::multiply_totals(total, x.total[n]);
      }
    }
  }
}
__device__ __forceinline__ void send_summaries(const Arguments& p, const Place& s, Shared& shared,
                                               const Lane& x) {
  const int to = s.block + s.chunk;
  const bool exists = to < kBlocks && to * kTile < static_cast<int>(p.seq);
#pragma unroll
  for (int n = 0; n < kStates; ++n) {
    const float total = __shfl_sync(0xffffffffu, x.total[n], 32 - kChannels + s.across);
    const float end = __shfl_sync(0xffffffffu, x.end[n], 32 - kChannels + s.across);
    if (exists) send(&shared.inbox[s.warp][s.block][n * kChannels + s.across], to, total, end);
  }
}

// The state of this lane in the exchange: state n of channel `lane % kChannels` of the warp.
struct Held {
  long long at;  // index in initial_state and final_state
  bool live;
};
__device__ __forceinline__ Held held(const Arguments& p, const Place& s) {
  const int n = s.part * kStates + s.lane / kChannels;
  return {(s.batch * p.dim + s.channel) * STATE + n, s.live};
}
// 3: the state before this block, distributed over the lanes as in Held.
__device__ __forceinline__ float take_summaries(const Arguments& p, const Place& s, const Shared& shared,
                                                float h) {
  float total, end;
#pragma unroll 1
  for (int block = 0; block < s.block; ++block) {
    receive(&shared.inbox[s.warp][block][s.lane], &total, &end);
    h = Rule::carry(h, total, end);
  }
  if (p.final_state != nullptr && blockIdx.y == 0 && s.steps <= kTile) {
    receive(&shared.inbox[s.warp][s.block][s.lane], &total, &end);
    const Held state = held(p, s);
    if (state.live) {
      p.final_state[state.at] = __fmul_rn(Rule::carry(h, total, end), 1.0f / Rule::kStateScale);
    }
  }
  return h;
}

__device__ __forceinline__ void read_out(const Arguments& p, const Place& s, Shared& shared, float before,
                                         Lane& x) {
  float h[kStates];
#pragma unroll
  for (int n = 0; n < kStates; ++n) {
    const float first = __shfl_sync(0xffffffffu, before, n * kChannels + s.across);
    const float after = Rule::carry(first, x.total[n], x.end[n]);
    const float earlier = __shfl_up_sync(0xffffffffu, after, kChannels);
    h[n] = s.chunk == 0 ? first : earlier;
  }
  float4* const to = shared.sums[s.part] + s.chunk * kSumChunk + s.column;
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad) {
    float y[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int i = 4 * quad + k;
      const Rule::Step common = Rule::step(x.dt[i], x.v[i]);
      float b[kStates], c[kStates];
      load_row(shared.b, s, i, b);
      load_row(shared.c, s, i, c);
#pragma unroll
      for (int n = 0; n < kStates; ++n) {
        const float decay = x.decay[i][n];
        h[n] = Rule::advance(h[n], decay, Rule::input(x.a[n], common, decay, b[n]));
        y[k] = n == 0 ? Rule::read_out(h[n], c[n]) : Rule::read_out(h[n], c[n], y[k]);
      }
#if WRITE_STATES
      const int position = s.chunk * kSteps + i;
      if (s.live && position < s.steps) {
        float* const states =
            p.states + (s.block_row(p, position) * p.dim + s.channel) * STATE + s.part * kStates;
#pragma unroll
        for (int n = 0; n < kStates; ++n) states[n] = __fmul_rn(h[n], 1.0f / Rule::kStateScale);
      }
#endif
    }
    to[quad * kAcross] = make_float4(y[0], y[1], y[2], y[3]);
  }
}

// y from all warps' sums, four steps of a channel at a time; neighbouring threads have neighbouring channels.
__device__ __forceinline__ void write(const Arguments& p, const Place& s, const Shared& shared) {
  constexpr int kAll = kChunks * kQuads * kAcross;
  void* const y_all = find_output(p);
  if (y_all == nullptr) return;
#pragma unroll 1
  for (int at = s.thread; at < kAll; at += kThreads) {
    const int channel = at % kAcross, quad = at / kAcross % kQuads, chunk = at / (kAcross * kQuads);
    if (channel >= s.channels) continue;
    const int from = chunk * kSumChunk + quad * kAcross + channel;
    float y[4] = {};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const float4 sum = shared.sums[part][from];
      const float each[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) y[k] = part == 0 ? each[k] : __fadd_rn(y[k], each[k]);
    }
    const float d = HAS_D ? p.d[s.first + channel] : 0.0f;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int in_chunk = 4 * quad + k, position = chunk * kSteps + in_chunk;
      const int element = chunk * kElementChunk + in_chunk * kAcross + channel;
      Storage z{};
#if HAS_Z
      z = shared.z[element];
#endif
      if (position < s.steps) {
        static_cast<Storage*>(y_all)[s.block_row(p, position) * p.dim + s.first + channel] =
            finish<Rule>(y[k], shared.x[element], z, d);
      }
    }
  }
}

}  // namespace

extern "C" __global__ void __cluster_dims__(CLUSTER_BLOCKS, 1, 1)
    __launch_bounds__(32 * CHANNEL_WARPS * STATE / 8, MIN_BLOCKS)
        selective_scan_short(const __grid_constant__ exphil::scan::Arguments p) {
  extern __shared__ float4 shared_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
  const Place s = find_place(p);
  start_copies(p, s, shared);
  clear_inbox(s, shared);
  cluster_arrive();  // after the inbox is cleared
  Lane x;
  load_constants(p, s, x);
  const Held state = held(p, s);
  float h = 0.0f;
  if (p.initial_state != nullptr && state.live) h = __fmul_rn(p.initial_state[state.at], Rule::kStateScale);
  finish_copies(s, shared);
  load_elements(p, s, shared, x);
  scan_chunk(s, shared, x);
  combine(s, x);
  cluster_wait();  // the other inboxes are cleared too
  // No block sends to a block beyond the sequence's end; every other block stays until all its summaries have
  // arrived.
  if (s.steps <= 0) return;
  send_summaries(p, s, shared, x);
  h = take_summaries(p, s, shared, h);
  read_out(p, s, shared, h, x);
  __syncthreads();
  write(p, s, shared);
}
