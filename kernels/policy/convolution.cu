// Convolutions over many rows: a thread for each row and channel. Compiled with the network and -D:
// CONVOLUTION, the index of the first of those that share the launch (policy/row_layout.cuh).
#include "kernels/policy/loops.cuh"
#include "kernels/policy/rows.cuh"

namespace exphil {
namespace policy {

constexpr int kJoined = joined_convolutions(kNetwork, CONVOLUTION).count;
constexpr int kLength = kNetwork.convolutions[CONVOLUTION].taps, kPast = kLength - 1;
constexpr Convolution of(int i) {
  return kNetwork.convolutions[CONVOLUTION + i];
}
constexpr int channels_before(int i) {
  int channels = 0;
  for (int k = 0; k < i; ++k) channels += size_of(of(k).in);
  return channels;
}
constexpr int kChannels = channels_before(kJoined);

// A channel of one of them.
struct Channel {
  int which, c, channels, state_at;
  RowPlace in, out;
  const float *weights, *bias;
  float* to;

  // all: its place among the channels of all.
  __device__ __forceinline__ Channel(const ConvolutionArguments& args, int all) {
#pragma unroll
    for (int i = 0; i < kJoined; ++i) {
      const int first = channels_before(i);
      if (all < first) continue;
      which = i, c = all - first, channels = size_of(of(i).in), state_at = of(i).state_at;
      in = row_place(kNetwork, of(i).in), out = row_place(kNetwork, of(i).out);
      weights = args.of[i].weights, bias = args.of[i].bias, to = args.of[i].out;
    }
  }
  __device__ __forceinline__ float input(const ConvolutionArguments& args, long long row) const {
    return args.in[row * in.stride + in.at + c];
  }
  __device__ __forceinline__ void convolve_row(long long row, const float (&taps)[kLength]) const {
    to[row * out.stride + out.at + c] = convolve(taps, weights + c, channels, bias[c]);
  }
};

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// A batch: each row updates its own history, which waits for no launch before: none of the frame has written
// it.
extern "C" __global__ void __launch_bounds__(kRowThreads)
    policy_convolve_batch(const ConvolutionArguments args) {
  begin_launch_after();
  const long long i = static_cast<long long>(blockIdx.x) * kRowThreads + threadIdx.x;
  const long long row = i / kChannels;
  if (row >= args.rows) return;
  const Channel channel(args, static_cast<int>(i % kChannels));
  const StatePlace state = layer_state(args, row);
  const float* history = state.from + channel.state_at + channel.c;
  float* next = state.to + channel.state_at + channel.c;
  float taps[kLength];
#pragma unroll
  for (int t = 0; t < kPast; ++t) taps[t] = history[t * channel.channels];
  await_launch_before();
  taps[kPast] = channel.input(args, row);
  channel.convolve_row(row, taps);
#pragma unroll
  for (int t = 0; t < kPast; ++t) next[t * channel.channels] = taps[t + 1];
}

// Sequences. The state's history is only read here, because other rows read it too.
extern "C" __global__ void __launch_bounds__(kRowThreads)
    policy_convolve_time(const ConvolutionArguments args) {
  follow_launch_before();
  const long long i = static_cast<long long>(blockIdx.x) * kRowThreads + threadIdx.x;
  const long long row = i / kChannels;
  if (row >= static_cast<long long>(args.sequences) * args.seq) return;
  const Channel channel(args, static_cast<int>(i % kChannels));
  const int step = static_cast<int>(row % args.seq);
  const float* history = layer_state(args, row / args.seq).from;
  float taps[kLength];
#pragma unroll
  for (int t = 0; t < kLength; ++t) {
    const int back = kPast - t;
    taps[t] = back <= step         ? channel.input(args, row - back)
              : history == nullptr ? 0.0f
                                   : history[channel.state_at + (t + step) * channel.channels + channel.c];
  }
  channel.convolve_row(row, taps);
}

// The history after sequences, where no scan's launch keeps it (policy/row_layout.cuh).
extern "C" __global__ void __launch_bounds__(kRowThreads)
    policy_keep_history(const ConvolutionArguments args) {
  follow_launch_before();
  const long long i = static_cast<long long>(blockIdx.x) * kRowThreads + threadIdx.x;
  if (i >= static_cast<long long>(args.sequences) * kChannels || args.states == nullptr) return;
  const int sequence = static_cast<int>(i / kChannels);
  const Channel channel(args, static_cast<int>(i % kChannels));
  const StatePlace state = layer_state(args, sequence);
  for_each_number<0, kJoined>([&](auto which) {
    constexpr int kWhich = decltype(which)::value;
    if (channel.which == kWhich)
      keep_history<CONVOLUTION + kWhich>(args, args.in, state, sequence, channel.c);
  });
}
