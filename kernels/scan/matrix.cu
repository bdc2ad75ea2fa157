// The selective scan with a full matrix A {dim, state, state} and the bilinear rule: each step solves
//   (I - dt A/2) h' = (I + dt A/2) h + dt B x.
// Launched by c_src/cuda/scan/launcher.cpp. A warp takes one channel of one sequence; lane i holds row i of A
// and of the system in registers. Gauss-Jordan elimination with partial pivoting: rows are not moved, a lane
// remembers whether its row has been a pivot. About state^2 issue slots for each step of a channel.
//
// Grid: x = batch * blocks of channels, y = directions; blockDim = (32, warps).
#include "kernels/common/device_math.cuh"
#include "kernels/scan/arguments.cuh"

namespace {

using namespace exphil;

constexpr unsigned kAll = 0xffffffffu;
using Storage = device::StorageOf<ELEMENT>::Type;

// The lane with the largest key; keys carry their lane in the low bits, so they all differ.
__device__ __forceinline__ int lane_of_largest(unsigned key) {
#if __CUDA_ARCH__ >= 800
  key = __reduce_max_sync(kAll, key);
#else
#pragma unroll
  for (int width = 16; width > 0; width /= 2) key = max(key, __shfl_xor_sync(kAll, key, width));
#endif
  return static_cast<int>(key & 31u);
}

// Solves the system whose row i (m, r) is in lane i; returns unknown i to lane i.
__device__ __forceinline__ float solve(float (&m)[STATE], float r, int lane) {
  bool done = lane >= STATE;
  int source = lane;
  float own_inverse = 0.0f;
#pragma unroll
  for (int k = 0; k < STATE; ++k) {
    // Bits of a positive float order as it does; the last six give way to "not done" and the lane.
    const unsigned key =
        done ? 0u : (__float_as_uint(fabsf(m[k])) & ~63u) | 32u | static_cast<unsigned>(lane);
    const int pivot = lane_of_largest(key);
    const float scale_k = 1.0f / __shfl_sync(kAll, m[k], pivot);
    const float pivot_r = __shfl_sync(kAll, r, pivot);
    const bool is_pivot = lane == pivot;
    const float factor = is_pivot ? 0.0f : -__fmul_rn(m[k], scale_k);
#pragma unroll
    for (int j = k + 1; j < STATE; ++j) m[j] = __fmaf_rn(factor, __shfl_sync(kAll, m[j], pivot), m[j]);
    r = __fmaf_rn(factor, pivot_r, r);
    if (is_pivot) done = true, own_inverse = scale_k;
    if (lane == k) source = pivot;
  }
  return __shfl_sync(kAll, __fmul_rn(r, own_inverse), source);
}

__device__ __forceinline__ float activate(float dt, float bias, const scan::Arguments& p) {
  return formulas::activate_dt<device::Math>(device::Real{dt}, device::Real{bias}, SOFTPLUS,
                                             device::Real{p.dt_min}, device::Real{p.dt_max})
      .v;
}

// What one time step reads; b and c of the lane's own state.
struct Inputs {
  float x, dt, z;
  float b, c;
};

struct Channel {
  int lane;
  long long batch, channel, b_group, c_group;
  bool reverse;
};

__device__ __forceinline__ Inputs load_inputs(const scan::Arguments& p, const Channel& s,
                                              long long position) {
  const long long t = s.batch * p.seq + (s.reverse ? p.seq - 1 - position : position);
  const long long at = t * p.dim + s.channel;
  Inputs in;
  in.x = device::widen<ELEMENT>(static_cast<const Storage*>(p.x)[at]);
  in.dt = device::widen<ELEMENT>(static_cast<const Storage*>(p.dt)[at]);
  in.z = HAS_Z ? device::widen<ELEMENT>(static_cast<const Storage*>(p.z)[at]) : 0.0f;
  in.b = in.c = 0.0f;
  if (s.lane < STATE) {
    const long long b_at = B_CONSTANT ? s.channel * STATE : t * p.b_step + s.b_group * STATE;
    const long long c_at = C_CONSTANT ? s.channel * STATE : t * p.c_step + s.c_group * STATE;
    in.b = device::widen<ELEMENT>(static_cast<const Storage*>(p.b)[b_at + s.lane]);
    in.c = device::widen<ELEMENT>(static_cast<const Storage*>(p.c)[c_at + s.lane]);
  }
  return in;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128)
    selective_scan_matrix(const __grid_constant__ exphil::scan::Arguments p) {
  Channel s;
  s.lane = threadIdx.x;
  s.batch = blockIdx.x / p.blocks_per_batch;
  s.channel = static_cast<long long>(blockIdx.x % p.blocks_per_batch) * blockDim.y + threadIdx.y;
  if (s.channel >= p.dim) return;  // whole warps, and no block barrier follows
  s.b_group = s.channel / p.b_group_channels, s.c_group = s.channel / p.c_group_channels;
  s.reverse = (p.reverse != 0) != (blockIdx.y != 0);
  void* y = blockIdx.y == 0 ? p.y : p.y_reverse;
  const bool own = s.lane < STATE;

  float a[STATE];
#pragma unroll
  for (int j = 0; j < STATE; ++j) a[j] = own ? p.a[(s.channel * STATE + s.lane) * STATE + j] : 0.0f;
  const float bias = p.dt_bias != nullptr ? p.dt_bias[s.channel] : 0.0f;
  const float d = HAS_D ? p.d[s.channel] : 0.0f;
  const long long state_at = (s.batch * p.dim + s.channel) * STATE + s.lane;
  float h = own && p.initial_state != nullptr ? p.initial_state[state_at] : 0.0f;

  Inputs next = p.seq > 0 ? load_inputs(p, s, 0) : Inputs{};
  for (long long position = 0; position < p.seq; ++position) {
    const Inputs in = next;
    if (position + 1 < p.seq) next = load_inputs(p, s, position + 1);
    const float dt = activate(in.dt, bias, p), half = 0.5f * dt;
    float a_h = 0.0f;
    float m[STATE];
#pragma unroll
    for (int j = 0; j < STATE; ++j) {
      a_h = __fmaf_rn(a[j], __shfl_sync(kAll, h, j), a_h);
      m[j] = __fmaf_rn(a[j], -half, s.lane == j ? 1.0f : 0.0f);
    }
    float r = __fmaf_rn(half, a_h, h);
    r = __fmaf_rn(__fmul_rn(dt, in.x), in.b, r);
    h = solve(m, r, s.lane);
    if (!own) h = 0.0f;

    float sum = __fmul_rn(h, in.c);
#pragma unroll
    for (int width = 16; width > 0; width /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(kAll, sum, width));
    if (HAS_D) sum = __fmaf_rn(d, in.x, sum);
    if (HAS_Z) sum = __fmul_rn(sum, device::silu(in.z));
    const long long t = s.batch * p.seq + (s.reverse ? p.seq - 1 - position : position);
    if (s.lane == 0 && y != nullptr)
      static_cast<Storage*>(y)[t * p.dim + s.channel] = device::narrow<ELEMENT>(sum);
    if (own && p.states != nullptr) p.states[(t * p.dim + s.channel) * STATE + s.lane] = h;
  }
  if (own && p.final_state != nullptr && blockIdx.y == 0) p.final_state[state_at] = h;
}
