// The selective scan of a warp that walks all of time, for the common case, twice as wide as in
// selective_scan.cu: a lane takes two neighbouring channels, so that what it reads of b and c serves both and
// x, dt, z and y move in pairs. Real A, b and c per step, states in multiples of four, an even number of
// channels to a group. c_src/cuda/scan_wide.cpp says which scans come here; selective_scan.cu walks for the
// others, selective_scan_chunked.cu does what is parallel in time.
//
// What bounds a scan on an H200, for each state and step of a warp: the special function unit (an exponential
// takes 8 cycles of a scheduler's share), the way from shared memory into registers (4 cycles for each word a
// lane reads), and the issue slots (5 at the least). One channel to a lane reads b and c anew for every
// channel, 8 to 12 cycles; two channels halve that.
//
// Time goes by in chunks of STEPS steps: while one is scanned, the next one's elements are on their way. The
// bits depend on neither STEPS nor GROUPS. Grid and arguments as in selective_scan.cu.
#include "selective_scan_wide.cuh"

namespace {

using namespace exphil;
using namespace exphil::scan_wide;

// The recurrence over one chunk: h moves on, y gets this lane's part of <C, h>.
__device__ __forceinline__ void advance(const Place& s, const Lane& lane, const float4* rows,
                                        const float4* active, States& h, float (&y)[2][kSteps]) {
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
      }
    }
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
  return s.live ? some : 0;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32 * GROUPS, MIN_BLOCKS)
    selective_scan_wide(const __grid_constant__ exphil::scan::Arguments p) {
  extern __shared__ float4 shared_memory[];
  Chunk& chunk = *reinterpret_cast<Chunk*>(shared_memory);
  const Place s = find_place(p);
  float4* const active = chunk.active[s.group];
  const long long element_step = kGroup * s.stride * kBytes, chunk_step = kSteps * s.stride * kBytes;
  // Of this lane's first element of the chunk in x, dt, z and y.
  long long at = (s.offset + s.part * s.stride) * kBytes;
  char* const y_all = static_cast<char*>(blockIdx.y == 0 ? p.y : p.y_reverse);

  Rows rows = find_rows(p, s);
  Two x[kElements], dt[kElements];
  load_elements(p.x, at, s, steps_of(s, p.seq), element_step, x);
  load_elements(p.dt, at, s, steps_of(s, p.seq), element_step, dt);
  if (p.seq > 0) start_rows(s, rows, chunk, 0, p.seq);
  const Lane lane = load_lane(p, s);
  States h;
  load_states(p, s, h);
  int parity = 0;
  for (long long left = p.seq; left > 0; left -= kSteps, at += chunk_step, parity ^= 1) {
    const int steps = steps_of(s, left);
    finish_rows(s, chunk, parity);
    activate(x, dt, lane, p, s, steps, active);
    __syncwarp();  // dt' and v are written
    if (left > kSteps) {
      const int next = steps_of(s, left - kSteps);
      load_elements(p.x, at + chunk_step, s, next, element_step, x);
      load_elements(p.dt, at + chunk_step, s, next, element_step, dt);
      start_rows(s, rows, chunk, parity ^ 1, left - kSteps);
    }
    if constexpr (WRITE_STATES) {
      write_states(p, s, lane, chunk.rows[parity], active, h, p.seq - left, steps);
    }
    float y[2][kSteps];
    advance(s, lane, chunk.rows[parity], active, h, y);
    __syncwarp();  // dt' and v have been read
    write(p, s, lane, y_all, at, y_all != nullptr ? steps : 0, element_step, y);
  }
  store_states(p, s, h);
}
