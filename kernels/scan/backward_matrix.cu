// The gradient of the selective scan with a full matrix A {dim, state, state} and the bilinear rule, step by
// step. Launched by c_src/cuda/scan. Each step solved (I - dt A/2) h' = (I + dt A/2) h + dt x B. With g =
// dL/dh' and
//   (I - dt A/2)^T q = g
// the right side receives q, so B receives dt x q, A receives dt/2 q (h' + h)^T, dt receives q^T (A (h' +
// h)/2 + x B) and h receives (I + dt A/2)^T q.
//
// A block is one warp, which takes CHANNELS neighbouring channels one after another; lane i has row and
// column i of A and row i of the system in registers. h is computed again: forward once, keeping every
// SEGMENT-th state in `checkpoints`; then segment by segment from the last, whose states are in shared
// memory.
//
// Grid: x = batch * blocks of channels.
#include "kernels/scan/backward_elements.cuh"
#include "kernels/scan/reduce.cuh"
#include "kernels/scan/solve.cuh"

namespace {

using namespace exphil;
using namespace exphil::scan;

constexpr int kSegment = SEGMENT, kChannels = CHANNELS;

struct Place : BlockPlace<long long> {
  int lane;
  bool own;  // the lane has a state
  long long channel;

  EXPHIL_DEVICE long long row(const Arguments& p, long long step) const {
    return batch * p.seq + (p.reverse ? p.seq - 1 - step : step);
  }
  // Of {batch, dim, state}.
  EXPHIL_DEVICE long long state(const Arguments& p) const { return (batch * p.dim + channel) * STATE + lane; }
};

struct Channel {
  float row[STATE], column[STATE];  // of A
  float row_sums[STATE];            // of dA
  float bias, d;
};

EXPHIL_DEVICE float load_projection(const Place& s, const void* data, bool constant, long long row,
                                    long long step, long long group_channels) {
  if (!s.own) return 0.0f;
  const long long at = constant ? s.channel * STATE : row * step + s.channel / group_channels * STATE;
  return load_element(data, at + s.lane);
}
EXPHIL_DEVICE float load_b(const Arguments& p, const Place& s, long long row) {
  return load_projection(s, p.b, B_CONSTANT, row, p.b_step, p.b_group_channels);
}
EXPHIL_DEVICE float load_c(const Arguments& p, const Place& s, long long row) {
  return load_projection(s, p.c, C_CONSTANT, row, p.c_step, p.c_group_channels);
}

EXPHIL_DEVICE float sum_lanes(float value, int lane) {
  float parts[1] = {value};
  return reduce_lanes<32>(parts, lane);
}

// h after a step.
EXPHIL_DEVICE float advance(const Arguments& p, const Place& s, const Channel& k, long long row, float h) {
  const long long at = row * p.dim + s.channel;
  const float dt = activate_dt(p, load_element(p.dt, at), k.bias), half = __fmul_rn(0.5f, dt);
  float a_h = 0.0f, m[STATE];
#pragma unroll
  for (int j = 0; j < STATE; ++j) {
    a_h = __fmaf_rn(k.row[j], __shfl_sync(kAll, h, j), a_h);
    m[j] = __fmaf_rn(k.row[j], -half, s.lane == j ? 1.0f : 0.0f);
  }
  const float r = __fmaf_rn(__fmul_rn(dt, load_element(p.x, at)), load_b(p, s, row), __fmaf_rn(half, a_h, h));
  h = solve(m, r, s.lane);
  return s.own ? h : 0.0f;
}

// A sum of a part's channels or, constant, of a channel's steps; `fresh`: the first of them.
EXPHIL_DEVICE void add_to(const Place& s, float* sums, long long row, float value, bool fresh) {
  if (!s.own) return;
  float* to = sums + row * STATE + s.lane;
  *to = fresh ? value : __fadd_rn(*to, value);
}

struct Totals {
  float g;  // dL/dh behind the step, of the lane's state
  float b, c, d, bias;
};

EXPHIL_DEVICE void step_back(const BackwardArguments& all, const Place& s, Channel& k, long long step,
                             float before, float after, bool first_channel, Totals& total) {
  const Arguments& p = all.scan;
  const long long row = s.row(p, step), at = row * p.dim + s.channel;
  const auto in = widen_inputs(load_inputs<1>(all, at));
  const float x = in.x.value[0], z = in.z.value[0], dy = gated_dy(in.dy.value[0], z);
  const float dt = activate_dt(p, in.dt.value[0], k.bias), half = __fmul_rn(0.5f, dt);
  const float b = load_b(p, s, row), c = load_c(p, s, row);
  float m[STATE];
#pragma unroll
  for (int j = 0; j < STATE; ++j) m[j] = __fmaf_rn(k.column[j], -half, s.lane == j ? 1.0f : 0.0f);
  float q = solve(m, __fmaf_rn(dy, c, total.g), s.lane);
  if (!s.own) q = 0.0f;
  const float sum = __fadd_rn(after, before), scaled = __fmul_rn(half, q);
  float a_sum = 0.0f, a_q = 0.0f;
#pragma unroll
  for (int j = 0; j < STATE; ++j) {
    const float sum_j = __shfl_sync(kAll, sum, j);
    a_sum = __fmaf_rn(k.row[j], sum_j, a_sum);
    a_q = __fmaf_rn(k.column[j], __shfl_sync(kAll, q, j), a_q);
    k.row_sums[j] = __fmaf_rn(scaled, sum_j, k.row_sums[j]);
  }
  total.g = __fmaf_rn(half, a_q, q);
  const float by_dt = sum_lanes(__fmul_rn(__fmul_rn(0.5f, q), a_sum), s.lane);
  const float by_input = sum_lanes(__fmul_rn(q, b), s.lane);
  const float y = HAS_Z ? sum_lanes(__fmul_rn(c, after), s.lane) : 0.0f;
  const float to_b = __fmul_rn(q, __fmul_rn(dt, x)), to_c = __fmul_rn(dy, after);
  const long long part_row =
      (s.batch * p.blocks_per_batch + blockIdx.x % p.blocks_per_batch) * p.seq + (row - s.batch * p.seq);
  if (B_CONSTANT) {
    total.b = __fadd_rn(total.b, to_b);
  } else {
    add_to(s, all.b_sums, part_row, to_b, first_channel);
  }
  if (C_CONSTANT) {
    total.c = __fadd_rn(total.c, to_c);
  } else {
    add_to(s, all.c_sums, part_row, to_c, first_channel);
  }
  const ElementGradients out =
      finish_element(p, x, in.dt.value[0], in.dy.value[0], z, k.bias, k.d, dt, by_dt, by_input, y);
  if (s.lane == 0) {
    store_elements<1>(all.dx, at, {out.dx});
    store_elements<1>(all.ddt, at, {out.ddt});
    if (HAS_Z) store_elements<1>(all.dz, at, {out.dz});
  }
  total.d = __fadd_rn(total.d, out.dd), total.bias = __fadd_rn(total.bias, out.ddt);
}

EXPHIL_DEVICE Channel load_channel(const Arguments& p, const Place& s) {
  Channel k;
#pragma unroll
  for (int j = 0; j < STATE; ++j) {
    k.row[j] = s.own ? p.a[(s.channel * STATE + s.lane) * STATE + j] : 0.0f;
    k.column[j] = s.own ? p.a[(s.channel * STATE + j) * STATE + s.lane] : 0.0f;
    k.row_sums[j] = 0.0f;
  }
  k.bias = bias_of(p, s.channel);
  k.d = HAS_D ? p.d[s.channel] : 0.0f;
  return k;
}

EXPHIL_DEVICE void store_totals(const BackwardArguments& all, const Place& s, const Channel& k,
                                const Totals& total) {
  const Arguments& p = all.scan;
  const long long row = s.batch * p.dim + s.channel;
  if (s.own) {
    if (all.d_initial_state != nullptr) all.d_initial_state[s.state(p)] = total.g;
    if (B_CONSTANT) all.b_sums[s.state(p)] = total.b;
    if (C_CONSTANT) all.c_sums[s.state(p)] = total.c;
#pragma unroll
    for (int j = 0; j < STATE; ++j) all.a_sums[(row * STATE + s.lane) * STATE + j] = k.row_sums[j];
  }
  if (s.lane == 0 && all.d_sums != nullptr) all.d_sums[row] = total.d;
  if (s.lane == 0 && all.bias_sums != nullptr) all.bias_sums[row] = total.bias;
}

// The state after `step` where every state is given; step -1: the initial one.
EXPHIL_DEVICE float given_state(const BackwardArguments& all, const Place& s, long long step) {
  const Arguments& p = all.scan;
  if (!s.own) return 0.0f;
  if (step >= 0) return all.given_states[(s.row(p, step) * p.dim + s.channel) * STATE + s.lane];
  return p.initial_state != nullptr ? p.initial_state[s.state(p)] : 0.0f;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32)
    selective_scan_backward_matrix(const __grid_constant__ exphil::scan::BackwardArguments all) {
  extern __shared__ float4 shared_memory[];
  // The lane's state before each step of a segment, and behind the last.
  float* const history = reinterpret_cast<float*>(shared_memory) + threadIdx.x;
  const Arguments& p = all.scan;
  Place s;
  static_cast<BlockPlace<long long>&>(s) = find_block<ThreadLayout>(p, kChannels);
  s.lane = threadIdx.x, s.own = s.lane < STATE;
#pragma unroll 1
  for (int number = 0; number < s.channels; ++number) {
    s.channel = s.first + number;
    Channel k = load_channel(p, s);
    const auto checkpoint = [&](long long segment) {
      return all.checkpoints + ((s.batch * all.segments + segment) * p.dim + s.channel) * STATE + s.lane;
    };
    float h = s.own && p.initial_state != nullptr ? p.initial_state[s.state(p)] : 0.0f;
    for (long long step = 0; !HAS_STATES && step < p.seq; ++step) {
      if (step % kSegment == 0 && s.own) *checkpoint(step / kSegment) = h;
      h = advance(p, s, k, s.row(p, step), h);
    }
    Totals total{};
    if (s.own && all.d_final_state != nullptr) total.g = all.d_final_state[s.state(p)];
    for (long long segment = p.seq > 0 ? all.segments - 1 : -1; segment >= 0; --segment) {
      const long long first = segment * kSegment, left = p.seq - first;
      const int steps = left < kSegment ? static_cast<int>(left) : kSegment;
      if (!HAS_STATES) history[0] = s.own ? *checkpoint(segment) : 0.0f;
      for (int i = 0; HAS_STATES && i <= steps; ++i) history[32 * i] = given_state(all, s, first + i - 1);
      for (int i = 0; !HAS_STATES && i < steps; ++i) {
        history[32 * (i + 1)] = advance(p, s, k, s.row(p, first + i), history[32 * i]);
      }
      for (int i = steps - 1; i >= 0; --i) {
        step_back(all, s, k, first + i, history[32 * i], history[32 * (i + 1)], number == 0, total);
      }
    }
    store_totals(all, s, k, total);
  }
}
