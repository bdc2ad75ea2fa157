// The selective scan with a full matrix A {dim, state, state} and the bilinear rule: each step solves
//   (I - dt A/2) h' = (I + dt A/2) h + dt B x.
// Launched by c_src/cuda/scan. A warp processes one channel of one sequence; lane i holds row i of A and of
// the system in registers. Gauss-Jordan elimination with partial pivoting: rows are not moved, and each lane
// records whether its row has been a pivot. About state^2 issue slots for each step of a channel.
//
// Grid: x = batch * blocks of channels, y = directions; blockDim = (32, warps).
#include "kernels/scan/frame.cuh"
#include "kernels/scan/solve.cuh"

namespace {

using namespace exphil;

using scan::kAll;
using scan::Storage;

// The inputs of one time step; b and c of the lane's state.
struct Inputs {
  Storage x, z;
  float dt, b, c;
};

// A column is a channel, whose states are in the lanes of a warp.
struct Place : scan::ThreadPlace<long long> {
  long long b_group, c_group;  // the channel's groups of b and c
};
EXPHIL_DEVICE Place find_place(const scan::Arguments& p) {
  Place s{scan::find_place<scan::ThreadLayout>(p, threadIdx.y, blockDim.y)};
  s.b_group = s.channel / p.b_group_channels, s.c_group = s.channel / p.c_group_channels;
  return s;
}

EXPHIL_DEVICE float load_projection(const void* data, long long row_at, bool constant, const Place& s) {
  const long long at = constant ? s.channel * STATE : row_at;
  return device::widen<ELEMENT>(static_cast<const Storage*>(data)[at + s.lane]);
}
EXPHIL_DEVICE Inputs load_inputs(const scan::Arguments& p, const Place& s, long long row) {
  const long long at = row * p.dim + s.channel;
  Inputs in{};
  in.x = static_cast<const Storage*>(p.x)[at];
  in.dt = device::widen<ELEMENT>(static_cast<const Storage*>(p.dt)[at]);
  if (HAS_Z) in.z = static_cast<const Storage*>(p.z)[at];
  if (s.lane < STATE) {
    in.b = load_projection(p.b, row * p.b_step + s.b_group * STATE, B_CONSTANT, s);
    in.c = load_projection(p.c, row * p.c_step + s.c_group * STATE, C_CONSTANT, s);
  }
  return in;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128, 5)
    selective_scan_matrix(const __grid_constant__ exphil::scan::Arguments p) {
  const Place s = find_place(p);
  if (!s.live) return;  // entire warps, and no block barrier follows
  auto* const y = static_cast<Storage*>(scan::find_output(p));
  const bool own = s.lane < STATE;

  float a[STATE];
#pragma unroll
  for (int j = 0; j < STATE; ++j) a[j] = own ? p.a[(s.channel * STATE + s.lane) * STATE + j] : 0.0f;
  const float bias = p.dt_bias != nullptr ? p.dt_bias[s.channel] : 0.0f;
  const float d = HAS_D ? p.d[s.channel] : 0.0f;
  const long long state_at = (s.batch * p.dim + s.channel) * STATE + s.lane;
  float h = own && p.initial_state != nullptr ? p.initial_state[state_at] : 0.0f;

  long long row = s.row(p, 0);  // of {batch, seq}
  Inputs next = p.seq > 0 ? load_inputs(p, s, row) : Inputs{};
  for (long long left = p.seq; left > 0; --left, row += s.step(1)) {
    const Inputs in = next;
    if (left > 1) next = load_inputs(p, s, row + s.step(1));
    const float dt = scan::activate_dt(p, in.dt, bias), half = 0.5f * dt;
    float a_h = 0.0f;
    float m[STATE];
#pragma unroll
    for (int j = 0; j < STATE; ++j) {
      a_h = __fmaf_rn(a[j], __shfl_sync(kAll, h, j), a_h);
      m[j] = __fmaf_rn(a[j], -half, s.lane == j ? 1.0f : 0.0f);
    }
    float r = __fmaf_rn(half, a_h, h);
    r = __fmaf_rn(__fmul_rn(dt, device::widen<ELEMENT>(in.x)), in.b, r);
    h = scan::solve(m, r, s.lane);
    if (!own) h = 0.0f;

    float sum = __fmul_rn(h, in.c);
#pragma unroll
    for (int width = 16; width > 0; width /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(kAll, sum, width));
    const long long at = row * p.dim + s.channel;
    if (s.lane == 0 && y != nullptr) y[at] = scan::finish(sum, in.x, in.z, d);
    if (WRITE_STATES && own) p.states[at * STATE + s.lane] = h;
  }
  if (own && p.final_state != nullptr && blockIdx.y == 0) p.final_state[state_at] = h;
}
