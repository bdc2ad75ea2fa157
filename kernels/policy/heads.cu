// A recurrence over heads (common/heads.cuh) over many rows: a batch of agents, each with its own state, or
// sequences in order. Neighbouring lanes have a row of a head's matrix, so that a warp reads whole rows.
// Compiled with the network and -D: HEADS, its index.
#include "kernels/policy/rows.cuh"
#include "kernels/policy/state_values.cuh"

namespace exphil {
namespace policy {

using It = HeadRows<HEADS>;
constexpr Heads kIt = It::kOf;
constexpr int kAcross = It::kLanesOf, kEach = It::kEach, kChannels = It::kChannels;
// Rows of a head that a block has at a time: of policy_heads_time, and of policy_heads_batch.
constexpr int kTile = kHeadThreads / kAcross;
constexpr int kBatchThreads = head_batch_threads(kIt), kBatchTile = kBatchThreads / kAcross;
constexpr int kAhead = heads_ahead(kIt);

constexpr RowPlace kValue = row_place(kNetwork, kIt.value), kKey = row_place(kNetwork, kIt.key);
constexpr RowPlace kQuery = row_place(kNetwork, kIt.query), kRate = row_place(kNetwork, kIt.rate);
constexpr RowPlace kZ = row_place(kNetwork, most(kIt.z, 0)), kOut = row_place(kNetwork, kIt.out);
// With the trapezoidal rule: keys of the ranks are kApart values apart.
constexpr int kApart = kIt.heads * It::kKeys, kFrames = frames_ahead(kIt);
constexpr RowPlace kA = row_place(kNetwork, most(kIt.a, 0)), kMix = row_place(kNetwork, most(kIt.mix, 0));
constexpr RowPlace kValueBefore = row_place(kNetwork, most(kIt.value_before, 0));
constexpr RowPlace kKeyBefore = row_place(kNetwork, most(kIt.key_before, 0));
constexpr RowPlace kDecays = row_place(kNetwork, most(kIt.decays, 0));

// What all lanes of a channel have; those beyond the last channel have the last one's.
struct Channel {
  int c, lane, head, first_key;
  bool exists;
  float weights[most(kIt.weights(), 1)], d;

  __device__ __forceinline__ Channel(const HeadsArguments& args, int channel)
      : c(least(channel, kChannels - 1)),
        lane(static_cast<int>(threadIdx.x) % kAcross),
        head(It::head(c)),
        first_key(It::first_key(c)),
        exists(channel < kChannels) {
#pragma unroll
    for (int i = 0; i < kIt.weights(); ++i) weights[i] = __ldg(args.a + c * kIt.weights() + i);
    d = __ldg(args.d + c);
  }
  // Of this lane's states among those of the phase.
  __device__ __forceinline__ int place() const {
    return c * It::kStates + lane * kEach;
  }

  // What a frame gives this lane. Plain loads: the launch before writes it, and may overlap with this one.
  using Frame = It::Frame;
  __device__ __forceinline__ Frame load(const HeadsArguments& args, long long row) const {
    const auto read = [](const auto* place) { return *place; };
    Frame frame;
    It::load(args.key + row * kKey.stride + kKey.at + first_key, kApart, lane, frame.key, read);
    It::load(args.query + row * kQuery.stride + kQuery.at + first_key, kApart, lane, frame.query, read);
    frame.rate = args.rate[row * kRate.stride + kRate.at + (kIt.delta() ? c : head)];
    frame.value = args.value[row * kValue.stride + kValue.at + c];
    frame.gate = kIt.z != kNoVector && lane == 0 ? args.z[row * kZ.stride + kZ.at + c] : 0.0f;
    if constexpr (kIt.delta()) {
      frame.decays = It::sum_of(args.decays + row * kDecays.stride + kDecays.at + first_key, lane, read);
    }
    if constexpr (kIt.trapezoid()) {
      It::load(args.key_before + row * kKeyBefore.stride + kKeyBefore.at + first_key, kApart, lane,
               frame.key_before, read);
      frame.value_before = args.value_before[row * kValueBefore.stride + kValueBefore.at + c];
      frame.a = args.rate[row * kA.stride + kA.at + head];
      frame.mix = args.rate[row * kMix.stride + kMix.at + head];
    }
    return frame;
  }
  // Advances the states by a frame. The first lane gets the outputs.
  struct Outputs {
    float values[It::kOutputs];
  };
  __device__ __forceinline__ Outputs advance(const Frame& frame, float (&h)[kEach]) const {
    float sums[It::kRanks];
    It::advance(h, frame, weights, sums);
#pragma unroll
    for (int r = 0; r < It::kRanks; ++r) sums[r] = add_lanes<kAcross>(sums[r]);
    Outputs out;
#pragma unroll
    for (int r = 0; r < It::kOutputs; ++r) {
      out.values[r] = It::output(sums, d, frame, &frame.gate, weights, r);
    }
    return out;
  }
  __device__ __forceinline__ void store(const HeadsArguments& args, long long row, const Outputs& out) const {
    if (lane != 0 || !exists || (It::kOutputs > 1 && c >= It::kValues)) return;
#pragma unroll
    for (int r = 0; r < It::kOutputs; ++r) {
      args.out[row * kOut.stride + kOut.at + r * It::kValues + c] = out.values[r];
    }
  }
};

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// One step of each row's own state. Bound by the traffic of the states, so kAhead of them are loaded
// before the first is needed (1,024 agents have 134 MB of them a layer, in f32). grid: tiles of kBatchTile *
// kAhead channels, any.
extern "C" __global__ void __launch_bounds__(kBatchThreads) policy_heads_batch(const HeadsArguments args) {
  follow_launch_before();
  const int first = static_cast<int>(blockIdx.x) * kBatchTile * kAhead;
  for (long long row = blockIdx.y; row < args.rows; row += gridDim.y) {
    const StatePlace state = layer_state(args, row);
    float h[kAhead][kEach];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int c = first + i * kBatchTile + static_cast<int>(threadIdx.x) / kAcross;
      const Channel channel(args, c);
      load_states<true>(state.from + kIt.state_at, channel.place(), channel.exists, h[i]);
    }
    Channel::Outputs out[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const Channel channel(args, first + i * kBatchTile + static_cast<int>(threadIdx.x) / kAcross);
      out[i] = channel.advance(channel.load(args, row), h[i]);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const Channel channel(args, first + i * kBatchTile + static_cast<int>(threadIdx.x) / kAcross);
      channel.store(args, row, out[i]);
      if (channel.exists) store_states<true>(h[i], state.to + kIt.state_at, channel.place());
    }
  }
}

// A sequence in order, with the state in registers: the same operations as step by step. kFrames frames
// are loaded before the first is needed. grid: tiles of kTile channels, sequences.
extern "C" __global__ void __launch_bounds__(kHeadThreads) policy_heads_time(const HeadsArguments args) {
  const Channel channel(args, static_cast<int>(blockIdx.x) * kTile + static_cast<int>(threadIdx.x) / kAcross);
  follow_launch_before();
  const int sequence = static_cast<int>(blockIdx.y);
  const StatePlace state = layer_state(args, sequence);
  float h[kEach];
  load_states<false>(state.from + kIt.state_at, channel.place(), channel.exists && state.from != nullptr, h);
  const long long row = static_cast<long long>(sequence) * args.seq;
  for (int first = 0; first < args.seq; first += kFrames) {
    Channel::Frame frames[kFrames];
#pragma unroll
    for (int i = 0; i < kFrames; ++i) {
      frames[i] = channel.load(args, row + least(first + i, args.seq - 1));
    }
#pragma unroll
    for (int i = 0; i < kFrames; ++i) {
      const int step = first + i;
      if (step >= args.seq) continue;
      const Channel::Outputs out = channel.advance(frames[i], h);
      keep_states(h);
      if (!args.last_only) channel.store(args, row + step, out);
      if (args.last_only && step + 1 == args.seq) channel.store(args, sequence, out);
    }
  }
  if (state.to != nullptr && channel.exists) store_states<false>(h, state.to + kIt.state_at, channel.place());
}
