// A scan over many rows. The step of dt is computed here where a short product gives it. Compiled with the
// network and -D: SCAN, its index.
#include "kernels/policy/rows.cuh"
#include "kernels/policy/state_values.cuh"

namespace exphil {
namespace policy {

constexpr Scan kIt = kNetwork.scans[SCAN];
constexpr int kShort = fused_product(kNetwork, Kind::scan, SCAN);
constexpr int kKept = kept_convolution(kNetwork, SCAN);
constexpr bool kOwnInputDt = kIt.input_dt != kNoVector;

constexpr Lanes kSpread(values_of(kIt.b));
constexpr int kAcross = kSpread.lanes, kEach = kSpread.each, kStates = kSpread.size();
constexpr int kChannels = size_of(kIt.x);
constexpr int kTileChannels = advance_channels(kAcross), kThreads = advance_threads(kAcross);

// Rows of the array of b hold c too, and what the short product reads. They are loaded as a whole.
constexpr RowPlace kX = row_place(kNetwork, kIt.x), kZ = row_place(kNetwork, kIt.z);
constexpr RowPlace kB = row_place(kNetwork, kIt.b), kC = row_place(kNetwork, kIt.c);
constexpr RowPlace kDt = row_place(kNetwork, kIt.dt), kY = row_place(kNetwork, kIt.out);
constexpr RowPlace kInputDt = row_place(kNetwork, kOwnInputDt ? kIt.input_dt : kIt.dt);
constexpr RowPlace kRead =
    kShort == kNoPhase ? kB : row_place(kNetwork, kNetwork.products[most(kShort, 0)].in);
static_assert(kC.owner == kB.owner && kRead.owner == kB.owner, "c_src/cuda/policy/rows.cpp refuses others");

// Time steps per tile in shared memory.
constexpr int tile_steps() {
  int steps = 32;
  while (steps > 1 && steps * (kB.stride + 3 * kTileChannels) * 4 > 44 * 1024) steps /= 2;
  return steps;
}
constexpr int kTileSteps = tile_steps();

// This lane's constants of a channel.
struct Channel {
  int c, lane;
  float a[kEach];
  float d, dt_bias;

  __device__ __forceinline__ Channel(const ScanArguments& args, int first) {
    const int thread = static_cast<int>(threadIdx.x);
    c = first + thread / kAcross;
    lane = thread % kAcross;
#pragma unroll
    for (int n = 0; n < kEach; ++n) a[n] = __ldg(args.a + c * kStates + lane * kEach + n);
    d = __ldg(args.d + c);
    dt_bias = kShort == kNoPhase ? 0.0f : __ldg(args.matrix.bias + c);
  }
};

// dt of a channel. bc: the row of b's array.
__device__ __forceinline__ float dt_of(const ScanArguments& args, long long row, const float* bc, int c,
                                       float bias) {
  if constexpr (kShort == kNoPhase) {
    return args.dt[row * kDt.stride + kDt.at + c];
  } else {
    return short_row<kShort>(args.matrix, bc + kRead.at, c, bias);
  }
}
__device__ __forceinline__ float input_dt_of(const ScanArguments& args, long long row) {
  return args.input_dt[row * kInputDt.stride + kInputDt.at];
}

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// One step of each row's own state. A block processes kTileChannels channels of kAcross rows at a time:
// each lane of a channel computes dt for one row, and then all lanes advance one row after another. Bound by
// the memory traffic of the states, 8 bytes a state value, or 4.
// The states wait for no launch before: none of the frame has written them.
// grid: channel tiles, any.
extern "C" __global__ void __launch_bounds__(kThreads) policy_advance_batch(const ScanArguments args) {
  begin_launch_after();
  constexpr int kAhead = least(kAcross, 4);  // rows whose states are loaded together
  const Channel channel(args, static_cast<int>(blockIdx.x) * kTileChannels);
  const int c = channel.c, lane = channel.lane, place = c * kStates + lane * kEach;
  float h[kAhead][kEach];
  float* next[kAhead];
  const auto load_rows = [&](long long from) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const StatePlace state =
          from + i < args.rows ? layer_state(args, from + i) : StatePlace{nullptr, nullptr};
      next[i] = state.to == nullptr ? nullptr : state.to + kIt.state_at;
      load_states<true>(state.from + kIt.state_at, place, next[i] != nullptr, h[i]);
    }
  };
  const long long step = static_cast<long long>(gridDim.y) * kAcross;
  long long first = static_cast<long long>(blockIdx.y) * kAcross;
  load_rows(first);
  await_launch_before();
  for (; first < args.rows; first += step) {
    const long long mine = first + lane < args.rows ? first + lane : args.rows - 1;
    const float dt = dt_of(args, mine, args.bc + mine * kB.stride, c, channel.dt_bias);
    const float u = args.x[mine * kX.stride + kX.at + c];
    const float gate_value = args.z[mine * kZ.stride + kZ.at + c];
    float read_out = 0.0f;
#pragma unroll 1
    for (int chunk = 0; chunk < kAcross; chunk += kAhead) {
      if (chunk > 0) load_rows(first + chunk);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const float dt_row = __shfl_sync(0xffffffffu, dt, chunk + i, kAcross);
        const float u_row = __shfl_sync(0xffffffffu, u, chunk + i, kAcross);
        const long long row = next[i] == nullptr ? mine : first + chunk + i;
        const float* bc = args.bc + row * kB.stride + kB.at + lane * kEach;
        const float input_dt = kOwnInputDt ? input_dt_of(args, row) : dt_row;
        const float sum =
            add_lanes<kAcross>(advance(h[i], channel.a, bc, bc + kC.at - kB.at, dt_row,
                                       __fmul_rn(input_dt, u_row), kIt.decays_input && args.decays_input));
        if (lane == chunk + i) read_out = sum;
        if (next[i] != nullptr) store_states<true>(h[i], next[i], place);
      }
    }
    if (first + lane < args.rows)
      args.y[mine * kY.stride + kY.at + c] = gate(read_out, channel.d, u, gate_value);
    if (first + step < args.rows) load_rows(first + step);
  }
}

namespace {

// One tile of time for the block's channels.
struct TimeTile {
  float bc[kTileSteps][kB.stride];
  float x[kTileSteps][kTileChannels];
  float dt[kTileSteps][kTileChannels];
  float read_out[kTileSteps][kTileChannels];
};

__device__ __forceinline__ void load_tile(const ScanArguments& args, TimeTile& tile, long long row, int steps,
                                          int first) {
  for (int i = static_cast<int>(threadIdx.x); i < steps * kB.stride / 4; i += kThreads) {
    (reinterpret_cast<float4*>(&tile.bc[0][0]))[i] =
        *(reinterpret_cast<const float4*>(args.bc + row * kB.stride) + i);
  }
  for (int i = static_cast<int>(threadIdx.x); i < steps * kTileChannels; i += kThreads) {
    tile.x[i / kTileChannels][i % kTileChannels] =
        args.x[(row + i / kTileChannels) * kX.stride + kX.at + first + i % kTileChannels];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < steps * kTileChannels; i += kThreads) {
    const int step = i / kTileChannels, c = i % kTileChannels;
    const float bias = kShort == kNoPhase ? 0.0f : __ldg(args.matrix.bias + first + c);
    tile.dt[step][c] = dt_of(args, row + step, tile.bc[step], first + c, bias);
  }
  __syncthreads();
}

// Gates the tile's outputs and writes all of them, or only the last one.
__device__ __forceinline__ void write_tile(const ScanArguments& args, const TimeTile& tile, long long row,
                                           int steps, int first, bool last_tile, int sequence) {
  for (int i = static_cast<int>(threadIdx.x); i < steps * kTileChannels; i += kThreads) {
    const int step = i / kTileChannels, c = i % kTileChannels;
    if (args.last_only && (!last_tile || step != steps - 1)) continue;
    const float gate_value = args.z[(row + step) * kZ.stride + kZ.at + first + c];
    const float y = gate(tile.read_out[step][c], __ldg(args.d + first + c), tile.x[step][c], gate_value);
    args.y[(args.last_only ? sequence : row + step) * kY.stride + kY.at + first + c] = y;
  }
}

// The history of the convolution before this scan. Where its input is in the array of z, there is one address
// less to hold.
template <int kConvolution>
__device__ __forceinline__ void keep_history_of(const ScanArguments& args, const StatePlace& state,
                                                int sequence, int first) {
  if constexpr (kConvolution != kNoPhase) {
    constexpr int kOwner = row_place(kNetwork, kNetwork.convolutions[kConvolution].in).owner;
    const int local = static_cast<int>(threadIdx.x);
    if (local >= kTileChannels) return;
    const float* const in = kOwner == kZ.owner ? args.z : args.history;
    keep_history<kConvolution>(args, in, state, sequence, first + local);
  }
}

}  // namespace

// A sequence in order, with the state in registers: the same operations as step by step. grid: channel tiles,
// sequences.
extern "C" __global__ void __launch_bounds__(kThreads) policy_advance_time(const ScanArguments args) {
  __shared__ __align__(16) TimeTile tile;
  __shared__ float tile_input_dt[kTileSteps];
  const int first = static_cast<int>(blockIdx.x) * kTileChannels;
  const int sequence = static_cast<int>(blockIdx.y);
  const Channel channel(args, first);
  follow_launch_before();
  const int lane = channel.lane, local = channel.c - first;
  const StatePlace state = layer_state(args, sequence);
  const int place = channel.c * kStates + lane * kEach;
  float h[kEach];
  load_states<false>(state.from + kIt.state_at, place, state.from != nullptr, h);

  for (int begin = 0; begin < args.seq; begin += kTileSteps) {
    const long long row = static_cast<long long>(sequence) * args.seq + begin;
    const int steps = least(kTileSteps, args.seq - begin);
    if constexpr (kOwnInputDt) {
      const int step = static_cast<int>(threadIdx.x);
      if (step < steps) tile_input_dt[step] = input_dt_of(args, row + step);
    }
    load_tile(args, tile, row, steps, first);
#pragma unroll 4
    for (int step = 0; step < steps; ++step) {
      const float* bc = &tile.bc[step][kB.at + lane * kEach];
      const float dt = tile.dt[step][local];
      const float input = __fmul_rn(kOwnInputDt ? tile_input_dt[step] : dt, tile.x[step][local]);
      const float sum = add_lanes<kAcross>(
          advance(h, channel.a, bc, bc + kC.at - kB.at, dt, input, kIt.decays_input && args.decays_input));
      keep_states(h);
      if (lane == 0) tile.read_out[step][local] = sum;
    }
    __syncthreads();
    write_tile(args, tile, row, steps, first, begin + steps == args.seq, sequence);
    __syncthreads();
  }
  if (state.to == nullptr) return;
  store_states<false>(h, state.to + kIt.state_at, place);
  keep_history_of<kKept>(args, state, sequence, first);
}
