// The selective scan in sequential order, for every diagonal A: short sequences, and enough channels to fill
// the device. scan/chunked.cu handles the others, in parallel over time. Launched by c_src/cuda/scan;
// scan/general.cuh describes how the work is divided.
//
// A warp keeps its states in registers from the first step to the last: one exponential and about 5 other
// instructions for each state and step, which is the minimum. While it scans one tile, the next tile's b, c,
// x and dt are copied.
//
// <C, h> is summed in one order whatever LANES is: pairs of neighbouring states, then a binary tree. The
// number of lanes, warps and blocks, and STEPS, therefore do not change the bits of the result.
//
// Arguments are read-only and outputs do not overlap inputs. Grid: x = batch * blocks of channels, y =
// directions.
#include "kernels/scan/general.cuh"

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
  Rows rows;           // in the staged form
  const float *b, *c;  // in the form that is read: this lane's part of the first row
  float2* pairs;       // of this lane's channel: one every kChannels
};

__device__ __forceinline__ Staging find_staging(const Arguments& p, const Place& s, char* memory) {
  const Layout layout{kRow,
                      kSteps,
                      kChannels,
                      kProjectionElement != device::kF32,
                      !B_CONSTANT,
                      !C_CONSTANT,
                      static_cast<int>(blockDim.y)};
  Staging t;
  t.rows = find_rows(s, p, memory, layout);
  t.b = reinterpret_cast<const float*>(memory) + s.part * kStateFloats;
  t.c = t.b + (B_CONSTANT ? 0 : 2 * t.rows.buffer);
  t.pairs =
      reinterpret_cast<float2*>(memory + layout.pairs()) + threadIdx.y * kSteps * kChannels + s.lane / kLanes;
  return t;
}

__device__ __forceinline__ void start_tile(Staging& t, long long left, int parity) {
  start_rows(t.rows, left < kSteps ? static_cast<int>(left) : kSteps, parity);
}

// This lane's part of b or c at one step of the tile.
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

// dt' and v of every step of the tile, for all lanes of the channel: pairs[step * kChannels]. Both are zero
// beyond the sequence, which leaves a state unchanged.
__device__ __forceinline__ void activate(const Storage (&x)[kElements], const Storage (&dt)[kElements],
                                         float bias, const Arguments& p, const Place& s, int steps,
                                         float2* pairs) {
#pragma unroll
  for (int q = 0; q < kElements; ++q) {
    const float raw_x = device::widen<ELEMENT>(x[q]);
    float active = activate_dt(p, device::widen<ELEMENT>(dt[q]), bias);
    float v = Rule::kPairHoldsX ? raw_x : __fmul_rn(active, raw_x);
    if (!has_element(s, steps, q)) active = 0.0f, v = 0.0f;
    if (kLanes <= kSteps || s.part < kSteps) {
      pairs[(q * kSumSteps + s.part) * kChannels] = make_float2(active, v);
    }
  }
}

// One lane's part of <C, h>: pairs of neighbouring states, then a tree over the pairs.
__device__ __forceinline__ float read_out(const State (&h)[kPerLane], const State (&c)[kPerLane]) {
  constexpr int kPairs = kPerLane > 1 ? kPerLane / 2 : 1;
  float sums[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    sums[i] = Rule::read_out(h[2 * i], c[2 * i]);
    if constexpr (kPerLane > 1) sums[i] = Rule::read_out(h[2 * i + 1], c[2 * i + 1], sums[i]);
  }
#pragma unroll
  for (int width = 1; width < kPairs; width *= 2) {
#pragma unroll
    for (int i = 0; i + width < kPairs; i += 2 * width) sums[i] = __fadd_rn(sums[i], sums[i + width]);
  }
  return sums[0];
}

// One tile: advances h by kSteps steps and writes the first `steps` of y.
__device__ __forceinline__ void walk(const Arguments& p, const Place& s, const Lane& lane, const Staging& t,
                                     int parity, long long start, int steps, char* y,
                                     const Storage (&x)[kElements], const Storage (&z)[kElements],
                                     State (&h)[kPerLane]) {
#pragma unroll
  for (int q = 0; q < kElements; ++q, y += element_step(s)) {
    float parts[kSumSteps];
#pragma unroll
    for (int i = 0; i < kSumSteps; ++i) {
      const int step = q * kSumSteps + i;
      const float2 pair = t.pairs[step * kChannels];
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
    if (has_element(s, steps, q)) *reinterpret_cast<Storage*>(y) = finish<Rule>(sum, x[q], z[q], lane.d);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(MAX_THREADS, MIN_BLOCKS)
    selective_scan(const __grid_constant__ exphil::scan::Arguments p) {
  extern __shared__ float4 shared_memory[];
  const Place s = find_place(p);
  const Lane lane = load_lane(p, s);
  Staging t = find_staging(p, s, reinterpret_cast<char*>(shared_memory));
  const long long state_row = s.batch * p.dim + s.channel;
  State h[kPerLane];
  load_state(p.initial_state, s, state_row, h);

  const char *x_in = find_elements(p.x, s), *dt_in = find_elements(p.dt, s), *z_in = find_elements(p.z, s);
  void* y_all = find_output(p);
  char* y = const_cast<char*>(find_elements(y_all, s));
  const long long tile_step = kSteps * s.stride * static_cast<long long>(sizeof(Storage));
  int next_steps = steps_of(s, p.seq);
  Storage next_x[kElements], next_dt[kElements];
  load_elements(x_in, s, next_steps, next_x);
  load_elements(dt_in, s, next_steps, next_dt);
  start_tile(t, p.seq, 0);
  int parity = 0;
  for (long long start = 0; start < p.seq; start += kSteps, parity ^= 1) {
    const int steps = next_steps;
    finish_rows(t.rows, parity);
    __syncwarp();  // the previous tile's pairs have been read
    activate(next_x, next_dt, lane.bias, p, s, steps, t.pairs);
    Storage x[kElements], z[kElements];
#pragma unroll
    for (int q = 0; q < kElements; ++q) x[q] = next_x[q], z[q] = Storage{};
    __syncthreads();
    if (HAS_Z) load_elements(z_in, s, steps, z);
    const long long left = p.seq - start - kSteps;  // after this tile
    if (left > 0) {
      x_in += tile_step, dt_in += tile_step, z_in += tile_step;
      next_steps = steps_of(s, left);
      load_elements(x_in, s, next_steps, next_x);
      load_elements(dt_in, s, next_steps, next_dt);
      start_tile(t, left, parity ^ 1);
    }
    walk(p, s, lane, t, parity, start, y_all != nullptr ? steps : 0, y, x, z, h);
    y += tile_step;
  }
  if (p.final_state != nullptr && blockIdx.y == 0) store_state(p.final_state, s, state_row, h);
}
