// A convolution over many rows: a thread for each row and channel. Compiled with the network and -D:
// CONVOLUTION, its index.
#include "kernels/policy/rows.cuh"

namespace exphil {
namespace policy {

constexpr Convolution kIt = kNetwork.convolutions[CONVOLUTION];
constexpr int kLength = kIt.taps, kPast = kIt.taps - 1, kChannels = size_of(kIt.in);
constexpr RowPlace kIn = row_place(kNetwork, kIt.in), kOut = row_place(kNetwork, kIt.out);

__device__ __forceinline__ void convolve_row(const ConvolutionArguments& args, long long row, int c,
                                             const float (&taps)[kLength]) {
  args.out[row * kOut.stride + kOut.at + c] = convolve(taps, args.weights + c, kChannels, args.bias[c]);
}

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// A batch: each row updates its own history.
extern "C" __global__ void __launch_bounds__(kRowThreads)
    policy_convolve_batch(const ConvolutionArguments args) {
  follow_launch_before();
  const long long i = static_cast<long long>(blockIdx.x) * kRowThreads + threadIdx.x;
  const long long row = i / kChannels;
  const int c = static_cast<int>(i % kChannels);
  if (row >= args.rows) return;
  const StatePlace state = layer_state(args, row);
  const float* history = state.from + kIt.state_at + c;
  float* next = state.to + kIt.state_at + c;
  float taps[kLength];
#pragma unroll
  for (int t = 0; t < kPast; ++t) taps[t] = history[t * kChannels];
  taps[kPast] = args.in[row * kIn.stride + kIn.at + c];
  convolve_row(args, row, c, taps);
#pragma unroll
  for (int t = 0; t < kPast; ++t) next[t * kChannels] = taps[t + 1];
}

// Sequences. The state's history is only read here, because other rows read it too.
extern "C" __global__ void __launch_bounds__(kRowThreads)
    policy_convolve_time(const ConvolutionArguments args) {
  follow_launch_before();
  const long long i = static_cast<long long>(blockIdx.x) * kRowThreads + threadIdx.x;
  const long long row = i / kChannels;
  const int c = static_cast<int>(i % kChannels);
  if (row >= static_cast<long long>(args.sequences) * args.seq) return;
  const int step = static_cast<int>(row % args.seq);
  const float* history = layer_state(args, row / args.seq).from;
  float taps[kLength];
#pragma unroll
  for (int t = 0; t < kLength; ++t) {
    const int back = kPast - t;
    taps[t] = back <= step         ? args.in[(row - back) * kIn.stride + kIn.at + c]
              : history == nullptr ? 0.0f
                                   : history[kIt.state_at + (t + step) * kChannels + c];
  }
  convolve_row(args, row, c, taps);
}

// The history after sequences, where no scan's launch keeps it (policy/row_layout.cuh).
extern "C" __global__ void __launch_bounds__(kRowThreads)
    policy_keep_history(const ConvolutionArguments args) {
  follow_launch_before();
  const long long i = static_cast<long long>(blockIdx.x) * kRowThreads + threadIdx.x;
  if (i >= static_cast<long long>(args.sequences) * kChannels || args.states == nullptr) return;
  const int sequence = static_cast<int>(i / kChannels);
  keep_history<CONVOLUTION>(args, args.in, layer_state(args, sequence), sequence,
                            static_cast<int>(i % kChannels));
}
