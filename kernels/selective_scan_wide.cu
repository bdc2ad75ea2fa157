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
#include "selective_scan_wide.cuh"

namespace {

using namespace exphil;
using namespace exphil::scan_wide;

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
