// A recurrence over heads (common/heads.cuh) over many rows: a batch of agents, each with its own state, or
// sequences in order. Neighbouring lanes have a row of a head's matrix, so that a warp reads whole rows.
// Compiled with the network and -D: HEADS, its index.
#include "kernels/policy/rows.cuh"

namespace exphil {
namespace policy {

using It = HeadRows<HEADS>;
constexpr Heads kIt = It::kOf;
constexpr int kAcross = It::kLanesOf, kEach = It::kEach, kChannels = It::kChannels;
constexpr int kTile = kHeadThreads / kAcross;  // rows of a head that a block has at a time

constexpr RowPlace kValue = row_place(kNetwork, kIt.value), kKey = row_place(kNetwork, kIt.key);
constexpr RowPlace kQuery = row_place(kNetwork, kIt.query), kRate = row_place(kNetwork, kIt.rate);
constexpr RowPlace kZ = row_place(kNetwork, most(kIt.z, 0)), kOut = row_place(kNetwork, kIt.out);

// What all lanes of a channel have; those beyond the last channel have the last one's.
struct Channel {
  int c, lane, head, first_key;
  bool exists;
  float a, d;

  __device__ __forceinline__ Channel(const HeadsArguments& args, int channel)
      : c(least(channel, kChannels - 1)),
        lane(static_cast<int>(threadIdx.x) % kAcross),
        head(It::head(c)),
        first_key(It::first_key(c)),
        exists(channel < kChannels),
        a(__ldg(args.a + c)),
        d(__ldg(args.d + c)) {}
  // In an agent's state.
  __device__ __forceinline__ int place() const { return kIt.state_at + c * It::kStates + lane * kEach; }

  // Advances the states by the frame of a row. Lane 0 writes the output to row `to`.
  __device__ __forceinline__ void advance(const HeadsArguments& args, long long row, long long to,
                                          bool answers, float (&h)[kEach]) const {
    float key[kEach], query[kEach];
    const auto read = [](const auto* place) { return __ldg(place); };
    It::load(args.key + row * kKey.stride + kKey.at + first_key, lane, key, read);
    It::load(args.query + row * kQuery.stride + kQuery.at + first_key, lane, query, read);
    const float rate = __ldg(args.rate + row * kRate.stride + kRate.at + head);
    const float value = __ldg(args.value + row * kValue.stride + kValue.at + c);
    const float sum = add_lanes<kAcross>(It::advance(h, key, query, a, rate, value));
    if (lane != 0 || !exists || !answers) return;
    args.out[to * kOut.stride + kOut.at + c] =
        It::output(sum, d, value, args.z + row * kZ.stride + kZ.at + c);
  }
};

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// One step of each row's own state. Bound by the traffic of the states, so kHeadsAhead of them are loaded
// before the first is needed. grid: tiles of kTile * kHeadsAhead channels, any.
extern "C" __global__ void __launch_bounds__(kHeadThreads) policy_heads_batch(const HeadsArguments args) {
  follow_launch_before();
  const int first = static_cast<int>(blockIdx.x) * kTile * kHeadsAhead;
  for (long long row = blockIdx.y; row < args.rows; row += gridDim.y) {
    const StatePlace state = layer_state(args, row);
    float h[kHeadsAhead][kEach];
#pragma unroll
    for (int i = 0; i < kHeadsAhead; ++i) {
      const int c = first + i * kTile + static_cast<int>(threadIdx.x) / kAcross;
      const Channel channel(args, c);
      It::load_state(state.from + channel.place(), channel.exists, h[i]);
    }
#pragma unroll
    for (int i = 0; i < kHeadsAhead; ++i) {
      const Channel channel(args, first + i * kTile + static_cast<int>(threadIdx.x) / kAcross);
      channel.advance(args, row, row, true, h[i]);
      if (channel.exists) It::store_state(state.to + channel.place(), h[i]);
    }
  }
}

// A sequence in order, with the state in registers: the same operations as step by step. grid: tiles of kTile
// channels, sequences.
extern "C" __global__ void __launch_bounds__(kHeadThreads) policy_heads_time(const HeadsArguments args) {
  const Channel channel(args, static_cast<int>(blockIdx.x) * kTile + static_cast<int>(threadIdx.x) / kAcross);
  follow_launch_before();
  const int sequence = static_cast<int>(blockIdx.y);
  const StatePlace state = layer_state(args, sequence);
  float h[kEach];
  It::load_state(state.from + channel.place(), channel.exists && state.from != nullptr, h);
  const long long row = static_cast<long long>(sequence) * args.seq;
#pragma unroll 4
  for (int step = 0; step < args.seq; ++step) {
    const bool answers = !args.last_only || step + 1 == args.seq;
    channel.advance(args, row + step, args.last_only ? sequence : row + step, answers, h);
  }
  if (state.to != nullptr && channel.exists) It::store_state(state.to + channel.place(), h);
}
