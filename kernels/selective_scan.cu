// The selective scan, one kernel for each way of cutting time. Launched by c_src/cuda/scan_launcher.cpp,
// which chooses the variant; selective_scan_tile.cuh says how work is dealt out.
//
//   SEQUENTIAL=1  a warp walks all of time with its states in registers. One exponential and about 5 other
//                 instructions for each state and step: the least there is, but a long sequence of few
//                 channels leaves the chip empty.
//   SEQUENTIAL=0  chunked: the `times` warps of a block take consecutive chunks of STEPS steps. Pass one
//   scans each
//                 chunk from a zero state and keeps the decays in registers, so that no exponential is
//                 computed twice; the chunks' (decay, end state) pairs are chained through shared memory in
//                 order of time; pass two runs the recurrence again from the state carried in, now two
//                 instructions for each state and step, and reads y out. The block then moves on by times *
//                 STEPS steps.
//
// A chunk's carry is always total decay * state carried in + local end, in order of time, so the result
// depends on STEPS but not on how many warps, lanes or blocks share the work.
//
// Arguments are read-only and outputs do not overlap inputs. Grid: x = batch * blocks of channels, y =
// directions.
#include "selective_scan_tile.cuh"

namespace {

using namespace exphil;
using namespace exphil::scan;

struct Lane {
  Rule::Constants a[kPerLane];
  State b[kPerLane], c[kPerLane];  // where constant
  float bias, d;
};

__device__ __forceinline__ Lane load_lane(const Arguments& p, const Place& s) {
  Lane lane;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int n = s.part * kPerLane + i;
    const float nothing[2] = {0.0f, 0.0f};
    const bool valid = s.live && n < STATE;
    lane.a[i] = Rule::constants(valid ? p.a + (s.channel * STATE + n) * kFloats : nothing);
  }
  lane.bias = p.dt_bias != nullptr && s.live ? p.dt_bias[s.channel] : 0.0f;
  lane.d = HAS_D && s.live ? p.d[s.channel] : 0.0f;
#if B_CONSTANT
  load_constant<kProjectionElement>(p.b, s, lane.b);
#endif
#if C_CONSTANT
  load_constant<kProjectionElement>(p.c, s, lane.c);
#endif
  return lane;
}

// A block's view of its shared memory.
struct Staging {
  Rows rows;                // as b and c are staged
  const float *b, *c;       // as they are read: this lane's part of the warp's first row
  float2* pairs;            // of this warp
  float *exchange, *carry;  // chunked only
};

__device__ __forceinline__ Staging find_staging(const Arguments& p, const Place& s, char* memory) {
  const Layout layout{kRow,
                      kSteps,
                      kChannels,
                      kStateFloats,
                      kProjectionElement != device::kF32,
                      !SEQUENTIAL,
                      !B_CONSTANT,
                      !C_CONSTANT,
                      static_cast<int>(blockDim.y),
                      static_cast<int>(blockDim.z)};
  Staging t;
  t.rows = find_rows(s, p, memory, layout);
  t.b = reinterpret_cast<const float*>(memory) + s.time * kSteps * kRow + s.part * kStateFloats;
  t.c = t.b + (B_CONSTANT ? 0 : 2 * t.rows.buffer);
  const int warp = s.group + blockDim.y * s.time;
  t.pairs = reinterpret_cast<float2*>(memory + layout.pairs()) + warp * kSteps * kChannels;
  t.exchange = reinterpret_cast<float*>(memory + layout.exchange());
  t.carry = reinterpret_cast<float*>(memory + layout.carry());
  return t;
}

__device__ __forceinline__ void start_tile(Staging& t, long long left, int parity) {
  start_rows(t.rows, left < t.rows.rows ? static_cast<int>(left) : t.rows.rows, parity);
}

// b or c of one step of this warp's chunk.
__device__ __forceinline__ void load_b(const Staging& t, const Lane& lane, const Place& s, int parity,
                                       int step, State (&b)[kPerLane]) {
#if B_CONSTANT
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) b[i] = lane.b[i];
#else
  load_row(t.b + parity * t.rows.buffer + step * kRow, b);
#endif
}
__device__ __forceinline__ void load_c(const Staging& t, const Lane& lane, const Place& s, int parity,
                                       int step, State (&c)[kPerLane]) {
#if C_CONSTANT
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) c[i] = lane.c[i];
#else
  load_row(t.c + parity * t.rows.buffer + step * kRow, c);
#endif
}

__device__ __forceinline__ void write_states(const Arguments& p, const Place& s, long long position,
                                             const State (&h)[kPerLane]) {
#if WRITE_STATES
  if (position >= p.seq) return;
  const long long row = s.offset + position * s.stride;  // of {batch, seq, dim}
  store_state(p.states, s, row, h);
#endif
}

#if SEQUENTIAL

// One chunk of a sequential scan: h advances by kSteps steps, y is written.
__device__ __forceinline__ void walk(const Arguments& p, const Place& s, const Lane& lane, const Staging& t,
                                     int parity, long long start, int steps, char* y,
                                     const Storage (&x)[kElements], const Storage (&z)[kElements],
                                     State (&h)[kPerLane]) {
#pragma unroll
  for (int q = 0; q < kElements; ++q, y += element_step(s)) {
    float parts[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int step = q * kGroup + i;
      const float2 pair = t.pairs[step * kChannels + s.channel_in_warp];
      const Rule::Step common = Rule::step(pair.x, pair.y);
      State b[kPerLane], c[kPerLane];
      load_b(t, lane, s, parity, step, b);
      load_c(t, lane, s, parity, step, c);
#pragma unroll
      for (int n = 0; n < kPerLane; ++n) {
        const State decay = Rule::decay(lane.a[n], common);
        h[n] = Rule::advance(h[n], decay, lane.a[n], common, b[n]);
      }
      parts[i] = read_out(h, c);
      write_states(p, s, start + step, h);
    }
    const float sum = reduce_lanes<kLanes>(parts, s.part);
    if (has_element(s, steps, q)) finish_element(sum, x[q], z[q], lane.d, y);
  }
}

#else

// What pass one leaves for pass two.
struct Kept {
  State decay[kSteps][kPerLane];
  State input[kKeepInput ? kSteps : 1][kPerLane];
};

// Pass one over one chunk from a zero state: local end state and total decay.
__device__ __forceinline__ void summarize(const Place& s, const Lane& lane, const Staging& t, int parity,
                                          Kept& kept, State (&end)[kPerLane], State (&total)[kPerLane]) {
  float sum_dt = 0.0f;
#pragma unroll
  for (int n = 0; n < kPerLane; ++n) end[n] = State{}, total[n] = Rule::one();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const float2 pair = t.pairs[step * kChannels + s.channel_in_warp];
    const Rule::Step common = Rule::step(pair.x, pair.y);
    State b[kPerLane];
    load_b(t, lane, s, parity, step, b);
#pragma unroll
    for (int n = 0; n < kPerLane; ++n) {
      const State decay = Rule::decay(lane.a[n], common);
      kept.decay[step][n] = decay;
      if constexpr (kKeepInput) {
        kept.input[step][n] = Rule::input(lane.a[n], common, decay, b[n]);
        end[n] = Rule::advance(end[n], decay, kept.input[step][n]);
      } else {
        end[n] = Rule::advance(end[n], decay, lane.a[n], common, b[n]);
      }
      if constexpr (!Rule::kDecayFromSum) total[n] = Rule::multiply_decay(total[n], decay);
    }
    sum_dt = __fadd_rn(sum_dt, pair.x);
  }
  if constexpr (Rule::kDecayFromSum) {
#pragma unroll
    for (int n = 0; n < kPerLane; ++n) total[n] = Rule::total_decay(lane.a[n], sum_dt);
  }
}

// Pass two: the recurrence from the state carried in, and y.
__device__ __forceinline__ void read_chunk(const Arguments& p, const Place& s, const Lane& lane,
                                           const Staging& t, int parity, long long start, int steps, char* y,
                                           const Kept& kept, const Storage (&x)[kElements],
                                           const Storage (&z)[kElements], State (&h)[kPerLane]) {
#pragma unroll
  for (int q = 0; q < kElements; ++q, y += element_step(s)) {
    float parts[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int step = q * kGroup + i;
      State c[kPerLane];
      load_c(t, lane, s, parity, step, c);
      if constexpr (kKeepInput) {
#pragma unroll
        for (int n = 0; n < kPerLane; ++n) {
          h[n] = Rule::advance(h[n], kept.decay[step][n], kept.input[step][n]);
        }
      } else {
        const float2 pair = t.pairs[step * kChannels + s.channel_in_warp];
        const Rule::Step common = Rule::step(pair.x, pair.y);
        State b[kPerLane];
        load_b(t, lane, s, parity, step, b);
#pragma unroll
        for (int n = 0; n < kPerLane; ++n) {
          h[n] = Rule::advance(h[n], kept.decay[step][n], lane.a[n], common, b[n]);
        }
      }
      parts[i] = read_out(h, c);
      write_states(p, s, start + step, h);
    }
    const float sum = reduce_lanes<kLanes>(parts, s.part);
    if (has_element(s, steps, q)) finish_element(sum, x[q], z[q], lane.d, y);
  }
}

// Chunk summaries in shared memory, [time][group][float4 or smaller piece][lane] so that a warp's accesses
// are contiguous: the end states, then the total decays.
constexpr int kPart = kStateFloats >= 4 ? 4 : kStateFloats;
__device__ __forceinline__ void put(float* at, int lane, const State (&values)[kPerLane]) {
  float flat[kStateFloats];
  pack(values, flat);
#pragma unroll
  for (int i = 0; i < kStateFloats; i += kPart) {
    float piece[kPart];
#pragma unroll
    for (int k = 0; k < kPart; ++k) piece[k] = flat[i + k];
    device::store_floats(at + i * 32 + lane * kPart, piece);
  }
}
__device__ __forceinline__ void take(const float* at, int lane, State (&values)[kPerLane]) {
  float flat[kStateFloats];
#pragma unroll
  for (int i = 0; i < kStateFloats; i += kPart) {
    float piece[kPart];
    device::load_floats(at + i * 32 + lane * kPart, piece);
#pragma unroll
    for (int k = 0; k < kPart; ++k) flat[i + k] = piece[k];
  }
  unpack(flat, values);
}

__device__ __forceinline__ void chain(State (&h)[kPerLane], const State (&total)[kPerLane],
                                      const State (&end)[kPerLane]) {
#pragma unroll
  for (int n = 0; n < kPerLane; ++n) h[n] = Rule::carry(h[n], total[n], end[n]);
}

// h: the state carried into this warp's chunk, from the block's carry and the chunks before it in the tile.
// The last chunk leaves the carry of the next tile.
__device__ __forceinline__ void carry_in(const Place& s, const Staging& t, int parity, bool first_tile,
                                         const State (&end)[kPerLane], const State (&total)[kPerLane],
                                         State (&h)[kPerLane]) {
  constexpr int kWarp = 32 * kStateFloats;
  if (!first_tile) take(t.carry + (parity * blockDim.y + s.group) * kWarp, s.lane, h);
  for (int time = 0; time < s.time; ++time) {
    const float* from = t.exchange + (time * blockDim.y + s.group) * 2 * kWarp;
    State before_end[kPerLane], before_total[kPerLane];
    take(from, s.lane, before_end);
    take(from + kWarp, s.lane, before_total);
    chain(h, before_total, before_end);
  }
  if (s.time + 1 == blockDim.z) {
    State next[kPerLane];
#pragma unroll
    for (int n = 0; n < kPerLane; ++n) next[n] = h[n];
    chain(next, total, end);
    put(t.carry + ((parity ^ 1) * blockDim.y + s.group) * kWarp, s.lane, next);
  }
}

#endif  // SEQUENTIAL

}  // namespace

extern "C" __global__ void __launch_bounds__(MAX_THREADS, MIN_BLOCKS)
    selective_scan(const __grid_constant__ exphil::scan::Arguments p) {
  extern __shared__ float4 shared_memory[];
  const Place s = find_place(p);
  const Lane lane = load_lane(p, s);
  Staging t = find_staging(p, s, reinterpret_cast<char*>(shared_memory));
  const int rows = t.rows.rows;
  const long long state_row = s.batch * p.dim + s.channel;
  State h[kPerLane];
  load_state(p.initial_state, s, state_row, h);

  Stream x_in = find_stream(p.x, s), dt_in = find_stream(p.dt, s), z_in = find_stream(p.z, s);
  void* y_all = s.direction == 0 ? p.y : p.y_reverse;
  char* y = const_cast<char*>(find_stream(y_all, s).at);
  const long long tile_step = rows * s.stride * static_cast<long long>(sizeof(Storage));
  long long left = p.seq - s.time * kSteps;  // steps from this warp's chunk on; counts down
  int next_steps = steps_of(s, left);
  Storage next_x[kElements], next_dt[kElements];
  load_elements(x_in, s, next_steps, next_x);
  load_elements(dt_in, s, next_steps, next_dt);
  start_tile(t, p.seq, 0);
  int parity = 0;
  for (long long tile_left = p.seq; tile_left > 0; tile_left -= rows, left -= rows, parity ^= 1) {
    const int steps = next_steps;
    finish_rows(t.rows, parity);
    __syncwarp();  // pairs of the tile before have been read
    activate(next_x, next_dt, lane.bias, p, s, steps, t.pairs);
    Storage x[kElements], z[kElements];
#pragma unroll
    for (int q = 0; q < kElements; ++q) x[q] = next_x[q], z[q] = Storage{};
    __syncthreads();
    if (HAS_Z) load_elements(z_in, s, steps, z);
    if (tile_left > rows) {
      x_in.at += tile_step, dt_in.at += tile_step, z_in.at += tile_step;
      next_steps = steps_of(s, left - rows);
      load_elements(x_in, s, next_steps, next_x);
      load_elements(dt_in, s, next_steps, next_dt);
      start_tile(t, tile_left - rows, parity ^ 1);
    }
    const bool busy = left > 0;  // the same for the whole warp
    const int written = y_all != nullptr ? steps : 0;
#if SEQUENTIAL
    walk(p, s, lane, t, parity, p.seq - left, written, y, x, z, h);
#else
    Kept kept;
    State end[kPerLane], total[kPerLane];
    if (busy) {
      summarize(s, lane, t, parity, kept, end, total);
      float* to = t.exchange + (s.time * blockDim.y + s.group) * 64 * kStateFloats;
      put(to, s.lane, end);
      put(to + 32 * kStateFloats, s.lane, total);
    }
    __syncthreads();
    if (busy) {
      carry_in(s, t, parity, tile_left == p.seq, end, total, h);
      read_chunk(p, s, lane, t, parity, p.seq - left, written, y, kept, x, z, h);
    }
#endif
    if (busy && left <= kSteps && p.final_state != nullptr && s.direction == 0) {
      store_state(p.final_state, s, state_row, h);
    }
    y += tile_step;
  }
  if (p.seq == 0 && s.time == 0 && p.final_state != nullptr) store_state(p.final_state, s, state_row, h);
}
