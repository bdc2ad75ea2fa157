// The steps between the matrix products of the policy for many rows: the norms' row scales, the causal
// convolution, the mean of dt where the form has it, and the state update, over a batch of agents (a state
// for each row) or over time (rows of a sequence in order). Launched by c_src/cuda/policy/rows.cpp. Compiled
// with the dimensions only.
//
// Rows: xz {rows, 2 kInner} holds x, then silu(z); u {rows, kInner} is silu(conv(x)); projection {rows,
// kProjection} holds dt, B, C; y {rows, kInner}.
#include "kernels/policy/arguments.cuh"
#include "kernels/policy/dot.cuh"
#include "kernels/policy/math.cuh"

namespace exphil {
namespace policy {

// The state of one layer: ssm, then conv.
__device__ __forceinline__ StatePlace layer_state(const RowArguments& args, long long index) {
  if (args.states == nullptr) return {nullptr, nullptr};
  const StatePlace state = args.states[index];
  return {state.from + args.state_offset, state.to + args.state_offset};
}

constexpr int kAdvanceChannels = advance_channels(kDims), kAdvanceThreads = advance_threads(kDims);

// Time steps per tile in shared memory.
constexpr int tile_steps() {
  int steps = 32;
  while (steps > 1 && steps * (kProjection + 3 * kAdvanceChannels) * 4 > 44 * 1024) steps /= 2;
  return steps;
}
constexpr int kTileSteps = tile_steps();

// This lane's constants of a channel.
struct Channel {
  int c, lane;
  float a[kPerLane];
  float d, dt_bias;

  __device__ __forceinline__ Channel(const RowArguments& args, int first) {
    const int thread = static_cast<int>(threadIdx.x);
    c = first + thread / kLanes;
    lane = thread % kLanes;
#pragma unroll
    for (int n = 0; n < kPerLane; ++n) a[n] = __ldg(args.a + c * kState + lane * kPerLane + n);
    d = __ldg(args.d + c);
    dt_bias = __ldg(args.dt_bias + c);
  }
};

// {rows}
__device__ __forceinline__ float* mean_dt(const RowArguments& args) {
  return args.active_dt + args.rows * kInner;
}

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// scale[row] = the norm's factor for h[row], scale[rows + row] its mean where the form centres; a warp per
// row.
extern "C" __global__ void __launch_bounds__(kRowThreads)
    policy_row_scales(const float* h, float* scale, long long rows, float epsilon) {
  const long long row = static_cast<long long>(blockIdx.x) * kScaledRows + threadIdx.x / 32;
  if (row >= rows) return;
  const NormFactors norm = norm_factors(h + row * kModel, epsilon);
  if (threadIdx.x % 32 != 0) return;
  scale[row] = norm.scale;
  if constexpr (kDims.centres()) scale[rows + row] = norm.mean;
}

// u of a batch: each row updates its own history. A thread per (row, channel).
extern "C" __global__ void __launch_bounds__(kRowThreads) policy_convolve_batch(const RowArguments args) {
  const long long i = static_cast<long long>(blockIdx.x) * kRowThreads + threadIdx.x;
  const long long row = i / kInner;
  const int c = static_cast<int>(i % kInner);
  if (row >= args.rows) return;
  const StatePlace state = layer_state(args, row);
  const float* history = state.from + kSsmFloats + c;
  float* next = state.to + kSsmFloats + c;
  float taps[kTaps];
#pragma unroll
  for (int t = 0; t < kHistory; ++t) taps[t] = history[t * kInner];
  taps[kHistory] = args.xz[row * 2 * kInner + c];
  args.u[row * kInner + c] = convolve(taps, args.conv + c, kInner, args.conv_bias[c]);
#pragma unroll
  for (int t = 0; t < kHistory; ++t) next[t * kInner] = taps[t + 1];
}

// u of sequences. The state's history is only read here; policy_advance_time updates it.
extern "C" __global__ void __launch_bounds__(kRowThreads) policy_convolve_time(const RowArguments args) {
  const long long i = static_cast<long long>(blockIdx.x) * kRowThreads + threadIdx.x;
  const long long row = i / kInner;
  const int c = static_cast<int>(i % kInner);
  if (row >= static_cast<long long>(args.sequences) * args.seq) return;
  const int step = static_cast<int>(row % args.seq);
  const float* history = layer_state(args, row / args.seq).from;
  float taps[kTaps];
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    const int back = kHistory - t;
    taps[t] = back <= step         ? args.xz[(row - back) * 2 * kInner + c]
              : history == nullptr ? 0.0f
                                   : history[kSsmFloats + (t + step) * kInner + c];
  }
  args.u[row * kInner + c] = convolve(taps, args.conv + c, kInner, args.conv_bias[c]);
}

// dt of every row and channel, and its mean over the channels of each row, where the form has that. grid:
// tiles of kDtRows rows.
extern "C" __global__ void __launch_bounds__(kRowThreads) policy_activate_dt(const RowArguments args) {
  constexpr int kSegments = kInner / kSegment;
  __shared__ float parts[kDtRows][kSegments];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const long long first = static_cast<long long>(blockIdx.x) * kDtRows;
  const int rows = args.rows - first < kDtRows ? static_cast<int>(args.rows - first) : kDtRows;
  for (int s = static_cast<int>(threadIdx.x) / 32; s < kSegments; s += kRowThreads / 32) {
    const int c = s * kSegment + lane;
    const float bias = __ldg(args.dt_bias + c);
    for (int r = 0; r < rows; ++r) {
      const float dt = activated_dt(args.dt_proj, kInner, args.dt_bias + kInner,
                                    args.projection + (first + r) * kProjection, c, bias);
      args.active_dt[(first + r) * kInner + c] = dt;
      const float part = segment_of_dt(dt, c);
      if (lane == 0) parts[r][s] = part;
    }
  }
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x);
  if (r < rows) mean_dt(args)[first + r] = mean_of_dt(parts[r]);
}

// One step of each row's own state. A block processes kAdvanceChannels channels of kLanes rows at a time:
// each lane of a channel computes dt for one row, and then all lanes advance one row after another. Bound by
// the memory traffic of the states, 8 bytes a state value. grid: channel tiles, any.
extern "C" __global__ void __launch_bounds__(kAdvanceThreads) policy_advance_batch(const RowArguments args) {
  constexpr int kAhead = least(kLanes, 4);  // rows whose states are loaded together
  const Channel channel(args, static_cast<int>(blockIdx.x) * kAdvanceChannels);
  const int c = channel.c, lane = channel.lane;
  for (long long first = static_cast<long long>(blockIdx.y) * kLanes; first < args.rows;
       first += static_cast<long long>(gridDim.y) * kLanes) {
    const long long mine = first + lane < args.rows ? first + lane : args.rows - 1;
    float dt;
    if constexpr (kForm.mean_dt) {
      dt = args.active_dt[mine * kInner + c];
    } else {
      dt = activated_dt(args.dt_proj, kInner, args.dt_bias + kInner, args.projection + mine * kProjection, c,
                        channel.dt_bias);
    }
    const float u = args.u[mine * kInner + c];
    const float gate_value = args.xz[mine * 2 * kInner + kInner + c];
    float read_out = 0.0f;
#pragma unroll 1
    for (int chunk = 0; chunk < kLanes; chunk += kAhead) {
      float h[kAhead][kPerLane];
      float* next[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const long long row = first + chunk + i;
        const int place = c * kState + lane * kPerLane;
        const StatePlace state = row < args.rows ? layer_state(args, row) : StatePlace{nullptr, nullptr};
        next[i] = state.to == nullptr ? nullptr : state.to + place;
#pragma unroll
        for (int n = 0; n < kPerLane; n += 4) {
          const float4 value = next[i] == nullptr ? make_float4(0, 0, 0, 0)
                                                  : *reinterpret_cast<const float4*>(state.from + place + n);
          h[i][n] = value.x, h[i][n + 1] = value.y, h[i][n + 2] = value.z, h[i][n + 3] = value.w;
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const float dt_row = __shfl_sync(0xffffffffu, dt, chunk + i, kLanes);
        const float u_row = __shfl_sync(0xffffffffu, u, chunk + i, kLanes);
        const long long row = next[i] == nullptr ? mine : first + chunk + i;
        const float* bc = args.projection + row * kProjection + kRank + lane * kPerLane;
        const float input_dt = kForm.mean_dt ? mean_dt(args)[row] : dt_row;
        const float sum =
            add_lanes(advance(h[i], channel.a, bc, bc + kState, dt_row, __fmul_rn(input_dt, u_row),
                              kForm.decays_input && args.decays_input));
        if (lane == chunk + i) read_out = sum;
        if (next[i] == nullptr) continue;
#pragma unroll
        for (int n = 0; n < kPerLane; n += 4) {
          *reinterpret_cast<float4*>(next[i] + n) =
              make_float4(h[i][n], h[i][n + 1], h[i][n + 2], h[i][n + 3]);
        }
      }
    }
    if (first + lane < args.rows) args.y[mine * kInner + c] = gate(read_out, channel.d, u, gate_value);
  }
}

namespace {

// One tile of time for the block's channels.
struct TimeTile {
  float projection[kTileSteps][kProjection];
  float u[kTileSteps][kAdvanceChannels];
  float dt[kTileSteps][kAdvanceChannels];
  float read_out[kTileSteps][kAdvanceChannels];
};

__device__ __forceinline__ void load_tile(const RowArguments& args, TimeTile& tile, long long row, int steps,
                                          int first) {
  for (int i = static_cast<int>(threadIdx.x); i < steps * kProjection / 4; i += kAdvanceThreads) {
    (reinterpret_cast<float4*>(&tile.projection[0][0]))[i] =
        *(reinterpret_cast<const float4*>(args.projection + row * kProjection) + i);
  }
  for (int i = static_cast<int>(threadIdx.x); i < steps * kAdvanceChannels; i += kAdvanceThreads) {
    tile.u[i / kAdvanceChannels][i % kAdvanceChannels] =
        args.u[(row + i / kAdvanceChannels) * kInner + first + i % kAdvanceChannels];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < steps * kAdvanceChannels; i += kAdvanceThreads) {
    const int step = i / kAdvanceChannels, c = i % kAdvanceChannels;
    if constexpr (kForm.mean_dt) {
      tile.dt[step][c] = args.active_dt[(row + step) * kInner + first + c];
    } else {
      tile.dt[step][c] = activated_dt(args.dt_proj, kInner, args.dt_bias + kInner, tile.projection[step],
                                      first + c, __ldg(args.dt_bias + first + c));
    }
  }
  __syncthreads();
}

// Gates the tile's outputs and writes all of them, or only the last one.
__device__ __forceinline__ void write_tile(const RowArguments& args, const TimeTile& tile, long long row,
                                           int steps, int first, bool last_tile, int sequence) {
  for (int i = static_cast<int>(threadIdx.x); i < steps * kAdvanceChannels; i += kAdvanceThreads) {
    const int step = i / kAdvanceChannels, c = i % kAdvanceChannels;
    if (args.last_only && (!last_tile || step != steps - 1)) continue;
    const float gate_value = args.xz[(row + step) * 2 * kInner + kInner + first + c];
    const float y = gate(tile.read_out[step][c], __ldg(args.d + first + c), tile.u[step][c], gate_value);
    args.y[(args.last_only ? sequence : row + step) * kInner + first + c] = y;
  }
}

// Stores the last inputs of the convolution as the state's history.
__device__ __forceinline__ void keep_history(const RowArguments& args, const StatePlace& state, int sequence,
                                             int first) {
  const int c = first + static_cast<int>(threadIdx.x);
  if (static_cast<int>(threadIdx.x) >= kAdvanceChannels || kHistory == 0) return;
  const float* history = state.from + kSsmFloats + c;
  float* next = state.to + kSsmFloats + c;
  float taps[kHistory > 0 ? kHistory : 1];
#pragma unroll
  for (int t = 0; t < kHistory; ++t) {
    const int step = args.seq - kHistory + t;
    const long long row = static_cast<long long>(sequence) * args.seq + step;
    taps[t] = step >= 0 ? args.xz[row * 2 * kInner + c] : history[(t + args.seq) * kInner];
  }
#pragma unroll
  for (int t = 0; t < kHistory; ++t) next[t * kInner] = taps[t];
}

}  // namespace

// A sequence in order, with the state in registers: the same operations as step by step. grid: channel tiles,
// sequences.
extern "C" __global__ void __launch_bounds__(kAdvanceThreads) policy_advance_time(const RowArguments args) {
  __shared__ __align__(16) TimeTile tile;
  __shared__ float tile_mean_dt[kTileSteps];
  const int first = static_cast<int>(blockIdx.x) * kAdvanceChannels;
  const int sequence = static_cast<int>(blockIdx.y);
  const Channel channel(args, first);
  const int lane = channel.lane, local = channel.c - first;
  const StatePlace state = layer_state(args, sequence);
  const int place = channel.c * kState + lane * kPerLane;
  float h[kPerLane];
#pragma unroll
  for (int n = 0; n < kPerLane; ++n) h[n] = state.from == nullptr ? 0.0f : state.from[place + n];

  for (int begin = 0; begin < args.seq; begin += kTileSteps) {
    const long long row = static_cast<long long>(sequence) * args.seq + begin;
    const int steps = least(kTileSteps, args.seq - begin);
    if constexpr (kForm.mean_dt) {
      const int step = static_cast<int>(threadIdx.x);
      if (step < steps) tile_mean_dt[step] = mean_dt(args)[row + step];
    }
    load_tile(args, tile, row, steps, first);
#pragma unroll 4
    for (int step = 0; step < steps; ++step) {
      const float* bc = &tile.projection[step][kRank + lane * kPerLane];
      const float dt = tile.dt[step][local];
      const float input = __fmul_rn(kForm.mean_dt ? tile_mean_dt[step] : dt, tile.u[step][local]);
      const float sum = add_lanes(
          advance(h, channel.a, bc, bc + kState, dt, input, kForm.decays_input && args.decays_input));
      if (lane == 0) tile.read_out[step][local] = sum;
    }
    __syncthreads();
    write_tile(args, tile, row, steps, first, begin + steps == args.seq, sequence);
    __syncthreads();
  }
  if (state.to == nullptr) return;
#pragma unroll
  for (int n = 0; n < kPerLane; ++n) state.to[place + n] = h[n];
  keep_history(args, state, sequence, first);
}
