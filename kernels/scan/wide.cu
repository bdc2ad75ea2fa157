// The sequential selective scan for the common case, twice as wide as in scan/general.cu: a lane has two
// neighbouring channels, so that each value read of b and c serves both, and x, dt, z and y are read in
// pairs. Real A, b and c per step, states in multiples of four, an even number of channels per group.
// c_src/cuda/scan/wide.cpp selects the scans for this kernel; scan/general.cu handles the other sequential
// ones, scan/chunked.cu those parallel in time.
//
// The bounds of a scan on an H200, for each state and step of a warp: the special function unit (an
// exponential takes 8 cycles of a scheduler's share), loads from shared memory to registers (4 cycles for
// each word of a lane), and the issue slots (at least 5). With one channel per lane, b and c are loaded for
// every channel, 8 to 12 cycles; two channels halve that.
//
// Time is processed in tiles of STEPS steps, through a ring of STAGES stages. Between two barriers the
// block's threads start the copies of tile t + STAGES - 1, activate tile t + 1 (dt' and v; halves of b and c
// become floats) and scan tile t. One barrier per tile, before these three steps, is enough:
//   - each thread waits for its own copies of tile t + 1 before it, so after it all of them are complete;
//   - activated values have two buffers: before it one was filled with tile t, and the scan of tile t - 1,
//     which uses the other, ended;
//   - all reading of the stage of tile t - 1, the target of the copies, has ended too. The stage of tile t is
//     kept until after the next barrier: the scan reads b and c (f32) and x (for D) there.
// 32x60x512x16 takes 12.2 us, halves 11.5 (H200, 2026-11-21). With x and dt copied through registers and one
// tile ahead halves took 14.5, more than in scan/general.cu (13.6).
//
// The bits do not depend on STEPS, CHANNEL_WARPS and STAGES. Grid and arguments as in scan/general.cu.
#include "kernels/scan/wide_copy.cuh"

namespace {

using namespace exphil;
using namespace exphil::scan_wide;

// The position of a lane's part of a tile: dt' and v of its pair, b and c of its states at the first step; x
// of its pair.
struct Tile {
  const float4 *active, *rows;
  const Pair* x;
};
__device__ __forceinline__ Tile find_tile(const Place& s, const Block& block, const Stage& stage,
                                          int parity) {
#if ELEMENT != 0
  const float4* const rows = block.rows[parity];
#else
  const float4* const rows = reinterpret_cast<const float4*>(stage.rows);
#endif
  return {block.active[parity] + s.column, rows + s.part, stage.x + s.part * kColumns + s.column};
}

// The position of a lane's next elements of z and y, and of its next states where they are written.
struct Output {
  const char* z;
  char* y;
  float* states;
};
__device__ __forceinline__ Output find_output(const Arguments& p, const Place& s) {
  const long long at = s.offset + s.part * s.stride + 2 * s.column * kBytes;
  return {static_cast<const char*>(p.z) + at, static_cast<char*>(find_output(p)) + at,
          p.states + (s.row(p, 0) * p.dim + s.channel) * STATE + s.part * kStates};
}

// The values of a step that do not depend on earlier steps.
struct Ahead {
  Rule::Step common[2];
  float decay[2][kStates];
};
__device__ __forceinline__ Ahead look_ahead(const Lane& lane, float4 both) {
  Ahead ahead{{Rule::step(both.x, both.y), Rule::step(both.z, both.w)}, {}};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < kStates; ++n) ahead.decay[r][n] = Rule::decay(lane.a[r][n], ahead.common[r]);
  }
  return ahead;
}

// The recurrence over one step: advances h and adds this lane's part of <C, h> to y.
__device__ __forceinline__ void advance(const Lane& lane, const Ahead& now, float4 b4, float4 c4, States& h,
                                        float (&y)[2]) {
  const float b[kStates] = {b4.x, b4.y, b4.z, b4.w}, c[kStates] = {c4.x, c4.y, c4.z, c4.w};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < kStates; ++n) {
      h[r][n] = Rule::advance(h[r][n], now.decay[r][n], lane.a[r][n], now.common[r], b[n]);
      y[r] = n == 0 ? Rule::read_out(h[r][n], c[n]) : Rule::read_out(h[r][n], c[n], y[r]);
    }
  }
}

__device__ __forceinline__ void load_z(const Place& s, Output& out, int steps, Pair (&z)[kElements]) {
#pragma unroll
  for (int q = 0; q < kElements; ++q) {
    z[q] = Pair{};
#if HAS_Z
    if (q * kSumSteps + s.part < steps) z[q] = *reinterpret_cast<const Pair*>(out.z);
    out.z += kSumSteps * s.stride;
#endif
  }
}

// The tile's states and y, of which the first `steps` exist (all where there are more). The next step's
// decays are computed before the current step's recurrence, which hides the latency of the special function
// unit.
__device__ __forceinline__ void walk(const Arguments& p, const Place& s, const Lane& lane, const Tile& tile,
                                     const Pair (&z)[kElements], int steps, bool with_y, States& h,
                                     Output& out) {
  Ahead next = look_ahead(lane, tile.active[0]);
#pragma unroll
  for (int q = 0; q < kElements; ++q) {
    float first[kSumSteps], second[kSumSteps];
#pragma unroll
    for (int i = 0; i < kSumSteps; ++i) {
      const int step = q * kSumSteps + i;
      const Ahead now = next;
      if (step + 1 < kSteps) next = look_ahead(lane, tile.active[(step + 1) * kColumns]);
      float y[2];
      advance(lane, now, tile.rows[step * kLanes], tile.rows[(kSteps + step) * kLanes], h, y);
      first[i] = y[0], second[i] = y[1];
#if WRITE_STATES
      if (step < steps) store_states(out.states, h);
      out.states += s.stride / kBytes * STATE;
#endif
    }
    const float sums[2] = {reduce_lanes<kLanes>(first, s.part), reduce_lanes<kLanes>(second, s.part)};
    Pair x{};
#if HAS_D
    x = tile.x[q * kSumSteps * kColumns];
#endif
    const Pair y = {finish<Rule>(sums[0], x.first, z[q].first, lane.d[0]),
                    finish<Rule>(sums[1], x.second, z[q].second, lane.d[1])};
    if (with_y && q * kSumSteps + s.part < steps) *reinterpret_cast<Pair*>(out.y) = y;
    out.y += kSumSteps * s.stride;
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32 * CHANNEL_WARPS, MIN_BLOCKS)
    selective_scan_wide(const __grid_constant__ exphil::scan::Arguments p) {
  extern __shared__ float4 shared_memory[];
  Block& block = *reinterpret_cast<Block*>(shared_memory);
  const Place s = find_place(p);
  Cursor cursor = find_cursor(p, s);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i)
    start_tile(p, s, cursor, block.stages[i], steps_ahead(p.seq) - i * kSteps);
  const Lane lane = load_lane(p, s);
  const float2 bias = load_bias(p, s);
  States h;
  load_states(p, s, h);
  Output out = find_output(p, s);
  const bool with_y = find_output(p) != nullptr;
  device::wait_copies<kStages - 2>();
  wait_for_block();
  activate(p, s, bias, block.stages[0], block, 0, steps_ahead(p.seq));
  Stage *free = block.stages + kStages - 1, *present = block.stages, *next = block.stages + 1;
  int parity = 0;
  for (long long left = p.seq; left > 0; left -= kSteps, parity ^= 1) {
    const int ahead = steps_ahead(left), steps = s.live ? ahead : 0;
    device::wait_copies<kStages - 3>();
    wait_for_block();
    Pair z[kElements];
    load_z(s, out, steps, z);
    start_tile(p, s, cursor, *free, ahead - (kStages - 1) * kSteps);
    if (ahead > kSteps) activate(p, s, bias, *next, block, parity ^ 1, ahead - kSteps);
    walk(p, s, lane, find_tile(s, block, *present, parity), z, steps, with_y, h, out);
    free = present, present = next;
    next = next == block.stages + kStages - 1 ? block.stages : next + 1;
  }
  if (p.final_state != nullptr && s.live && blockIdx.y == 0) {
    store_states(p.final_state + (s.batch * p.dim + s.channel) * STATE + s.part * kStates, h);
  }
}
