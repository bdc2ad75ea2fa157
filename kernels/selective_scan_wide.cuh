// What selective_scan_wide.cu is made of: where a thread stands, staging of b and c in shared memory, x, dt,
// z and y in pairs of channels. All sizes are -D defines; selective_scan_wide.cu says how the scan goes.
#pragma once

#include "selective_scan_elements.cuh"
#include "selective_scan_reduce.cuh"

namespace exphil {
namespace scan_wide {

using namespace scan;

using Rule = RealRule<static_cast<Discretization>(DISCRETIZATION)>;

constexpr int kStates = 4;                                     // of a lane
constexpr int kLanes = STATE / kStates, kPairs = 32 / kLanes;  // lanes to a pair of channels, pairs to a warp
constexpr int kSteps = STEPS, kGroups = GROUPS;
constexpr int kGroup = kLanes < kSteps ? kLanes : kSteps;  // steps whose sums are reduced together
constexpr int kElements = kSteps / kGroup;                 // pairs of x, dt, z, y for each lane and chunk
constexpr int kPieces = kSteps * kLanes;                   // of four elements: a chunk's rows of b, or of c
constexpr int kThreads = 32 * kGroups;                     // that share them
constexpr int kShare = (kPieces + kThreads - 1) / kThreads;
constexpr int kShareRows = kThreads / kLanes;  // from one piece of a thread's share to the next

struct alignas(2 * sizeof(Storage)) Two {
  Storage first, second;
};

struct alignas(16) Chunk {  // in shared memory
#if ELEMENT != 0
  ushort4 raw[2 * kPieces];  // the next chunk's rows as they arrive
#endif
  float4 rows[2][2 * kPieces];              // double-buffered
  float4 active[kGroups][kSteps * kPairs];  // dt', v of the first channel, dt', v of the second
};

static_assert(sizeof(Chunk) == wide_chunk_bytes(STATE, STEPS, GROUPS, ELEMENT != 0),
              "the launcher reserves as much");

// Where a thread stands. Offsets are in elements of x.
struct Place {
  int lane, pair, part, group;
  bool live, reverse;
  long long batch, channel, offset, stride;
  long long b_group, c_group;
};

__device__ __forceinline__ Place find_place(const Arguments& p) {
  Place s;
  s.lane = threadIdx.x, s.group = threadIdx.y;
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

// This thread's share of the rows of b (0) and of c (1), piece by piece.
struct Rows {
  const Storage* from[2];  // of the next chunk
  long long step[2];       // to the next row in time
};
__device__ __forceinline__ int piece(const Place& s, int i) {
  return s.lane + 32 * s.group + i * kThreads;
}
__device__ __forceinline__ bool is_piece(int at) {
  return kPieces % kThreads == 0 || at < kPieces;
}
__device__ __forceinline__ Rows find_rows(const Arguments& p, const Place& s) {
  Rows rows;
  const int first = piece(s, 0);
  const long long row = s.batch * p.seq + (s.reverse ? p.seq - 1 - first / kLanes : first / kLanes);
  const int column = first % kLanes * kStates;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const long long step = m == 0 ? p.b_step : p.c_step;
    rows.from[m] = static_cast<const Storage*>(m == 0 ? p.b : p.c) + row * step +
                   (m == 0 ? s.b_group : s.c_group) * STATE + column;
    rows.step[m] = s.reverse ? -step : step;
  }
  return rows;
}
// Starts on the rows of the next chunk, `left` steps of which exist; what does not exist becomes zero. Halves
// land in `raw`. Held in registers instead they cost a scan 28 per cent (32x60x512x16 on an H200).
__device__ __forceinline__ void start_rows(const Place& s, Rows& rows, Chunk& chunk, int parity,
                                           long long left) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      const int at = piece(s, i);
      const Storage* const from = rows.from[m] + i * kShareRows * rows.step[m];
      const bool valid = at / kLanes < left;
      if (!is_piece(at)) continue;
#if ELEMENT == 0
      device::copy_async<16>(chunk.rows[parity] + m * kPieces + at, from, valid);
#else
      device::copy_async<8>(chunk.raw + m * kPieces + at, from, valid);
#endif
    }
    rows.from[m] += kSteps * rows.step[m];
  }
}
// The rows are there for the warps of the block, halves widened by the threads that copied them, and their
// other buffer is free.
__device__ __forceinline__ void finish_rows(const Place& s, Chunk& chunk, int parity) {
  device::copies_done();
#if ELEMENT != 0
#pragma unroll
  for (int i = 0; i < 2 * kShare; ++i) {
    const int at = piece(s, i % kShare), to = i / kShare * kPieces + at;
    if (is_piece(at)) {
      chunk.rows[parity][to] = device::widen_four<ELEMENT>(reinterpret_cast<const Storage*>(chunk.raw + to));
    }
  }
#endif
  if (kGroups == 1) {
    __syncwarp();
  } else {
    __syncthreads();
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
  const float active = activate_dt(p, device::widen<ELEMENT>(dt), bias), raw = device::widen<ELEMENT>(x);
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

// y of this lane's elements, from every lane's parts of the sums. x is read again: the next
// chunk's has taken its registers.
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
      sum[r] = reduce_lanes<kLanes>(parts, s.part);
    }
    const Two out = {finish<Rule>(sum[0], x.first, z.first, lane.d[0]),
                     finish<Rule>(sum[1], x.second, z.second, lane.d[1])};
    if (valid) *reinterpret_cast<Two*>(y_all + at) = out;
  }
}

}  // namespace scan_wide
}  // namespace exphil
