// The selective scan for the common case, twice as wide: a lane takes two neighbouring channels, so that what
// it reads of b and c serves both and x, dt, z and y move in pairs. Real A, b and c per step, states in
// multiples of four, an even number of channels to a group. c_src/cuda/scan_plan.cpp chooses between this and
// selective_scan.cu, which does everything.
//
// What bounds a scan on an H200, for each state and step of a warp: the special function unit (an exponential
// takes 8 cycles of a scheduler's share), the way from shared memory into registers (4 cycles for each word a
// lane reads), and the issue slots (5 at the least, 7 chunked). One channel to a lane reads b and c anew for
// every channel, 8 to 12 cycles; two channels halve that.
//
//   SEQUENTIAL=1  a warp walks all of time.
//   SEQUENTIAL=0  the TIMES warps of a group of channels take turns: warp t has the chunks t, t + TIMES, ...
//   of STEPS steps. A chunk is scanned from a zero state, its decays kept in registers; then the state
//   carried in arrives from the warp before, goes on to the warp after, and its part of y is added. No
//   exponential is computed twice, and no barrier stops the block.
//
// The bits depend on STEPS, not on GROUPS and TIMES. Grid and arguments as in selective_scan.cu.
#include "selective_scan_arguments.cuh"
#include "selective_scan_rules.cuh"

namespace {

using namespace exphil;
using namespace exphil::scan;

using Rule = RealRule<static_cast<Discretization>(DISCRETIZATION)>;
using Storage = device::StorageOf<ELEMENT>::Type;

constexpr int kStates = 4;                                     // of a lane
constexpr int kLanes = STATE / kStates, kPairs = 32 / kLanes;  // lanes to a pair of channels, pairs to a warp
constexpr int kSteps = STEPS, kGroups = GROUPS, kTimes = TIMES;
constexpr int kGroup = kLanes < kSteps ? kLanes : kSteps;  // steps whose sums are reduced together
constexpr int kElements = kSteps / kGroup;                 // pairs of x, dt, z, y for each lane and chunk
constexpr int kPieces = 2 * kSteps * kLanes;               // of four elements: b's rows, then c's
constexpr int kThreads = 32 * kGroups;                     // that share a chunk's rows
constexpr int kShare = (kPieces + kThreads - 1) / kThreads;

struct alignas(2 * sizeof(Storage)) Two {
  Storage first, second;
};

struct alignas(16) Chunk {  // in shared memory
#if ELEMENT != 0
  ushort4 raw[kPieces];
#endif
  float4 rows[2][kPieces];                  // double-buffered
  float4 active[kGroups][kSteps * kPairs];  // dt', v of the first channel, dt', v of the second
  float4 carried[kGroups][2][32];           // mailboxes: the states carried into a chunk,
  unsigned number[kGroups];                 // and the number of that chunk
};

static_assert(sizeof(Chunk) == wide_chunk_bytes(STATE, STEPS, GROUPS, ELEMENT != 0),
              "the launcher reserves as much");

// Where a thread stands. Offsets are in elements of x.
struct Place {
  int lane, pair, part, group, time;
  bool live, reverse;
  long long batch, channel, offset, stride;
  long long b_group, c_group;
};

__device__ __forceinline__ Place find_place(const Arguments& p) {
  Place s;
  s.lane = threadIdx.x, s.group = threadIdx.y, s.time = threadIdx.z;
  s.pair = s.lane / kLanes, s.part = s.lane % kLanes;
  const int in_batch = blockIdx.x % p.blocks_per_batch;
  s.batch = blockIdx.x / p.blocks_per_batch;
  const long long span = in_batch / p.blocks_per_span;
  const long long first =
      span * p.span_channels + static_cast<long long>(in_batch % p.blocks_per_span) * 2 * kPairs * kGroups;
  s.channel = first + 2 * (s.group * kPairs + s.pair);
  s.live = s.channel < (span + 1) * p.span_channels;
  s.reverse = (p.reverse != 0) != (blockIdx.y != 0);
  s.offset = (s.batch * p.seq + (s.reverse ? p.seq - 1 : 0)) * p.dim + s.channel;
  s.stride = s.reverse ? -p.dim : p.dim;
  s.b_group = first / p.b_group_channels, s.c_group = first / p.c_group_channels;
  return s;
}

// What a lane knows of its two channels.
struct Lane {
  Rule::Constants a[2][kStates];
  float bias[2], d[2];
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
    lane.bias[r] = p.dt_bias != nullptr && s.live ? p.dt_bias[s.channel + r] : 0.0f;
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
__device__ __forceinline__ void store_states(const Arguments& p, const Place& s, const States& h) {
  if (p.final_state == nullptr || !s.live || blockIdx.y != 0) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < kStates; ++n) {
      p.final_state[(s.batch * p.dim + s.channel + r) * STATE + s.part * kStates + n] =
          __fmul_rn(h[r][n], 1.0f / Rule::kStateScale);
    }
  }
}

// This thread's share of the rows of b and c, piece by piece.
struct Rows {
  const Storage* from[kShare];
  long long step[kShare];  // to the same row of this warp's next chunk
};
__device__ __forceinline__ int piece(const Place& s, int i) {
  return s.lane + 32 * s.group + i * kThreads;
}
__device__ __forceinline__ Rows find_rows(const Arguments& p, const Place& s) {
  Rows rows;
#pragma unroll
  for (int i = 0; i < kShare; ++i) {
    const int at = piece(s, i) % kPieces, row = at / kLanes % kSteps + s.time * kSteps;
    const bool is_c = at >= kSteps * kLanes;
    const long long step = is_c ? p.c_step : p.b_step;
    const long long first = s.batch * p.seq + (s.reverse ? p.seq - 1 - row : row);
    rows.from[i] = static_cast<const Storage*>(is_c ? p.c : p.b) + first * step +
                   (is_c ? s.c_group : s.b_group) * STATE + at % kLanes * kStates;
    rows.step[i] = (s.reverse ? -step : step) * (kSteps * kTimes);
  }
  return rows;
}
// Starts on the rows of the next chunk, `left` steps of which exist; what does not exist becomes zero. Halves
// land in `raw`, and are widened by the threads that copied them.
__device__ __forceinline__ void start_rows(const Place& s, Rows& rows, Chunk& chunk, int parity,
                                           long long left) {
#pragma unroll
  for (int i = 0; i < kShare; ++i) {
    const int at = piece(s, i);
    const bool valid = at / kLanes % kSteps < left;
    if (kPieces % kThreads == 0 || at < kPieces) {
#if ELEMENT == 0
      device::copy_async<16>(chunk.rows[parity] + at, rows.from[i], valid);
#else
      device::copy_async<8>(chunk.raw + at, rows.from[i], valid);
#endif
    }
    rows.from[i] += rows.step[i];
  }
}
// The rows are there for the warps that share the chunk, and their other buffer is free.
__device__ __forceinline__ void finish_rows(const Place& s, Chunk& chunk, int parity) {
  device::copies_done();
#if ELEMENT != 0
#pragma unroll
  for (int i = 0; i < kShare; ++i) {
    const int at = piece(s, i);
    if (kPieces % kThreads == 0 || at < kPieces) {
      const ushort4 v = chunk.raw[at];
      chunk.rows[parity][at] = make_float4(device::widen<ELEMENT>(v.x), device::widen<ELEMENT>(v.y),
                                           device::widen<ELEMENT>(v.z), device::widen<ELEMENT>(v.w));
    }
  }
#endif
  if (kGroups == 1) {
    __syncwarp();
  } else {
    device::barrier(1 + s.time, kThreads);
  }
}

constexpr long long kBytes = sizeof(Storage);

__device__ __forceinline__ void load_elements(const void* from, long long at, const Place& s, int steps,
                                              long long step, Two (&to)[kElements]) {
#pragma unroll
  for (int q = 0; q < kElements; ++q, at += step) {
    to[q] = Two{};
    if (q * kGroup + s.part < steps)
      to[q] = *reinterpret_cast<const Two*>(static_cast<const char*>(from) + at);
  }
}

__device__ __forceinline__ float2 activate(Storage x, Storage dt, float bias, const Arguments& p) {
  const device::Real biased = device::Real{device::widen<ELEMENT>(dt)} + device::Real{bias};
#if CLIP
  const float active =
      formulas::activate_dt<device::Math>(device::Real{device::widen<ELEMENT>(dt)}, device::Real{bias},
                                          SOFTPLUS, device::Real{p.dt_min}, device::Real{p.dt_max})
          .v;
#else
  const float active = SOFTPLUS ? formulas::softplus<device::Math>(biased).v : biased.v;
#endif
  (void)biased;
  const float raw = device::widen<ELEMENT>(x);
  return {active, Rule::kPairHoldsX ? raw : __fmul_rn(active, raw)};
}
// dt' and v of every step of the chunk; beyond the sequence both are zero, which leaves a state as it is.
__device__ __forceinline__ void activate(const Two (&x)[kElements], const Two (&dt)[kElements],
                                         const Lane& lane, const Arguments& p, const Place& s, int steps,
                                         float4* active) {
#pragma unroll
  for (int q = 0; q < kElements; ++q) {
    const float2 first = activate(x[q].first, dt[q].first, lane.bias[0], p);
    const float2 second = activate(x[q].second, dt[q].second, lane.bias[1], p);
    const bool valid = q * kGroup + s.part < steps;
    if (kLanes <= kSteps || s.part < kSteps) {
      active[(q * kGroup + s.part) * kPairs + s.pair] =
          valid ? make_float4(first.x, first.y, second.x, second.y) : make_float4(0, 0, 0, 0);
    }
  }
}

// Sums `parts` over the lanes of a pair and deals the kGroup sums out: lane j gets that of step j. Each level
// adds neighbours and halves what is left to send.
__device__ __forceinline__ float reduce_lanes(float (&parts)[kGroup], int part) {
#pragma unroll
  for (int width = 1; width < kLanes; width *= 2) {
    if (width < kGroup) {
      const bool odd = part & width;
#pragma unroll
      for (int i = 0; i < kGroup / (2 * width); ++i) {
        const float keep = odd ? parts[2 * i + 1] : parts[2 * i];
        const float send = odd ? parts[2 * i] : parts[2 * i + 1];
        parts[i] = __fadd_rn(keep, __shfl_xor_sync(0xffffffffu, send, width));
      }
    } else {
      parts[0] = __fadd_rn(parts[0], __shfl_xor_sync(0xffffffffu, parts[0], width));
    }
  }
  return parts[0];
}

__device__ __forceinline__ Storage finish(float sum, Storage x, Storage z, float d) {
  float value = __fmul_rn(sum, Rule::kReadOutScale);
#if HAS_D
  value = __fmaf_rn(d, device::widen<ELEMENT>(x), value);
#endif
#if HAS_Z
  value = __fmul_rn(value, device::silu(device::widen<ELEMENT>(z)));
#endif
  return device::narrow<ELEMENT>(value);
}
// y of this lane's elements, from every lane's parts of the sums. x is read again: keeping it would cost the
// registers that the decays need.
__device__ __forceinline__ void write(const Arguments& p, const Place& s, const Lane& lane, char* y_all,
                                      long long at, int steps, long long step, float (&y)[2][kSteps]) {
#pragma unroll
  for (int q = 0; q < kElements; ++q, at += step) {
    const bool valid = q * kGroup + s.part < steps;
    Two x{}, z{};
#if HAS_D
    if (valid) x = *reinterpret_cast<const Two*>(static_cast<const char*>(p.x) + at);
#endif
#if HAS_Z
    if (valid) z = *reinterpret_cast<const Two*>(static_cast<const char*>(p.z) + at);
#endif
    float sum[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float parts[kGroup];
#pragma unroll
      for (int i = 0; i < kGroup; ++i) parts[i] = y[r][q * kGroup + i];
      sum[r] = reduce_lanes(parts, s.part);
    }
    const Two out = {finish(sum[0], x.first, z.first, lane.d[0]),
                     finish(sum[1], x.second, z.second, lane.d[1])};
    if (valid) *reinterpret_cast<Two*>(y_all + at) = out;
  }
}

struct Decays {
  float of[kSteps][2][kStates];
};

// The recurrence over one chunk: h moves on, y gets this lane's part of <C, h>. `kept` and `total` are null
// for a walk.
template <bool kKeep>
__device__ __forceinline__ void advance(const Place& s, const Lane& lane, const float4* rows,
                                        const float4* active, States& h, float (&y)[2][kSteps], Decays& kept,
                                        States& total) {
  float sum_dt[2] = {0.0f, 0.0f};
  if constexpr (kKeep) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int n = 0; n < kStates; ++n) total[r][n] = Rule::one();
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const float4 both = active[step * kPairs + s.pair];
    const float4 b4 = rows[step * kLanes + s.part], c4 = rows[(kSteps + step) * kLanes + s.part];
    const float b[kStates] = {b4.x, b4.y, b4.z, b4.w}, c[kStates] = {c4.x, c4.y, c4.z, c4.w};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float dt = r == 0 ? both.x : both.z, v = r == 0 ? both.y : both.w;
      const Rule::Step common = Rule::step(dt, v);
#pragma unroll
      for (int n = 0; n < kStates; ++n) {
        const float decay = Rule::decay(lane.a[r][n], common);
        h[r][n] = Rule::advance(h[r][n], decay, lane.a[r][n], common, b[n]);
        y[r][step] = n == 0 ? Rule::read_out(h[r][n], c[n]) : Rule::read_out(h[r][n], c[n], y[r][step]);
        if constexpr (kKeep) {
          kept.of[step][r][n] = decay;
          if constexpr (!Rule::kDecayFromSum) total[r][n] = Rule::multiply_decay(total[r][n], decay);
        }
      }
      if constexpr (kKeep) sum_dt[r] = __fadd_rn(sum_dt[r], dt);
    }
  }
  if constexpr (kKeep && Rule::kDecayFromSum) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int n = 0; n < kStates; ++n) total[r][n] = Rule::total_decay(lane.a[r][n], sum_dt[r]);
  }
}

// What the state carried in adds to y as it decays through the chunk.
__device__ __forceinline__ void add_carried(const Place& s, const float4* rows, const Decays& kept, States& h,
                                            float (&y)[2][kSteps]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const float4 c4 = rows[(kSteps + step) * kLanes + s.part];
    const float c[kStates] = {c4.x, c4.y, c4.z, c4.w};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int n = 0; n < kStates; ++n) {
        h[r][n] = Rule::multiply_decay(h[r][n], kept.of[step][r][n]);
        y[r][step] = Rule::read_out(h[r][n], c[n], y[r][step]);
      }
    }
  }
}

// The mailbox of a warp is filled by its predecessor, and free again by then: the next states to be put there
// have been round through this warp. Words that each carry their chunk's number, which need no fence, were
// slower on an H200 (52 us for 43 on 8x1024x512x16): polling them takes shared memory's bandwidth.
__device__ __forceinline__ void send(Chunk& to, const Place& s, unsigned number, const States& h) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    to.carried[s.group][r][s.lane] = make_float4(h[r][0], h[r][1], h[r][2], h[r][3]);
  }
  __syncwarp();
  if (s.lane == 0) device::store_release(&to.number[s.group], number);
}
__device__ __forceinline__ void receive(const Chunk& from, const Place& s, unsigned number, States& h) {
  while (device::load_acquire(&from.number[s.group]) != number) {
  }
  __syncwarp();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float4 v = from.carried[s.group][r][s.lane];
    h[r][0] = v.x, h[r][1] = v.y, h[r][2] = v.z, h[r][3] = v.w;
  }
}

// The states after each of the chunk's `steps`, where they are asked for: the recurrence once more, from h.
__device__ __forceinline__ void write_states(const Arguments& p, const Place& s, const Lane& lane,
                                             const float4* rows, const float4* active, const States& from,
                                             long long position, int steps) {
  States h;
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int n = 0; n < kStates; ++n) h[r][n] = from[r][n];
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const float4 both = active[step * kPairs + s.pair], b4 = rows[step * kLanes + s.part];
    const float b[kStates] = {b4.x, b4.y, b4.z, b4.w};
    const long long channel = s.offset + (position + step) * s.stride;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Rule::Step common = Rule::step(r == 0 ? both.x : both.z, r == 0 ? both.y : both.w);
#pragma unroll
      for (int n = 0; n < kStates; ++n) {
        const float decay = Rule::decay(lane.a[r][n], common);
        h[r][n] = Rule::advance(h[r][n], decay, lane.a[r][n], common, b[n]);
        p.states[(channel + r) * STATE + s.part * kStates + n] = __fmul_rn(h[r][n], 1.0f / Rule::kStateScale);
      }
    }
  }
}

__device__ __forceinline__ int steps_of(const Place& s, long long left) {
  const int some = left < kSteps ? static_cast<int>(left) : kSteps;
  return s.live ? some : 0;  // negative where the sequence has ended before
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32 * GROUPS * TIMES, MIN_BLOCKS)
    selective_scan_wide(const __grid_constant__ exphil::scan::Arguments p) {
  extern __shared__ float4 shared_memory[];
  Chunk* const chunks = reinterpret_cast<Chunk*>(shared_memory);
  const Place s = find_place(p);
  Chunk& own = chunks[s.time];
  long long left = p.seq - s.time * kSteps;  // steps from this warp's chunk on; counts down
  constexpr int kRound = kSteps * kTimes;
  const long long element_step = kGroup * s.stride * kBytes, round_step = kRound * s.stride * kBytes;
  // Of this lane's first element of the chunk in x, dt, z and y.
  long long at = (s.offset + (s.time * kSteps + s.part) * s.stride) * kBytes;
  char* const y_all = static_cast<char*>(blockIdx.y == 0 ? p.y : p.y_reverse);

  Rows rows = find_rows(p, s);
  Two x[kElements], dt[kElements];
  int steps = steps_of(s, left);
  load_elements(p.x, at, s, steps, element_step, x);
  load_elements(p.dt, at, s, steps, element_step, dt);
  if (left > 0) start_rows(s, rows, own, 0, left);
  const Lane lane = load_lane(p, s);
  States h;
  load_states(p, s, h);
#if !SEQUENTIAL
  send(own, s, s.time == 0 ? 0 : ~0u, h);  // no chunk has the number -1
  __syncthreads();
#endif
  unsigned number = s.time;
  for (int parity = 0; left > 0; left -= kRound, number += kTimes, parity ^= 1) {
    finish_rows(s, own, parity);
    activate(x, dt, lane, p, s, steps, own.active[s.group]);
    __syncwarp();  // dt' and v are written
    const int here = steps, written = y_all != nullptr ? steps : 0;
    const long long y_at = at;
    if (left > kRound) {
      at += round_step;
      steps = steps_of(s, left - kRound);
      load_elements(p.x, at, s, steps, element_step, x);
      load_elements(p.dt, at, s, steps, element_step, dt);
      start_rows(s, rows, own, parity ^ 1, left - kRound);
    }
    float y[2][kSteps];
    Decays kept;
    States total;
#if SEQUENTIAL
#if WRITE_STATES
    write_states(p, s, lane, own.rows[parity], own.active[s.group], h, p.seq - left, here);
#endif
    advance<false>(s, lane, own.rows[parity], own.active[s.group], h, y, kept, total);
#else
    States end = {};
    advance<true>(s, lane, own.rows[parity], own.active[s.group], end, y, kept, total);
    receive(own, s, number, h);
#if WRITE_STATES
    write_states(p, s, lane, own.rows[parity], own.active[s.group], h, p.seq - left, here);
#endif
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int n = 0; n < kStates; ++n) end[r][n] = Rule::carry(h[r][n], total[r][n], end[r][n]);
    if (left > kSteps) {
      send(chunks[s.time + 1 < kTimes ? s.time + 1 : 0], s, number + 1, end);
    } else {
      store_states(p, s, end);
    }
    add_carried(s, own.rows[parity], kept, h, y);
#endif
    __syncwarp();  // dt' and v have been read
    write(p, s, lane, y_all, y_at, written, element_step, y);
  }
#if SEQUENTIAL
  store_states(p, s, h);
#else
  if (p.seq == 0 && s.time == 0) store_states(p, s, h);
#endif
}
