// What a vector was in the frame before, over many rows: sequences in order; a batch of agents is sequences
// of one frame. Compiled with the network and -D: DELAY, its index.
#include "kernels/policy/rows.cuh"

using namespace exphil::policy;

// A thread for each value of a row. That of a sequence's first row reads the state, and writes the next one.
// grid: ceil(rows * values / kRowThreads).
extern "C" __global__ void __launch_bounds__(kRowThreads) policy_delay(const DelayArguments args) {
  follow_launch_before();
  constexpr Delay kIt = kNetwork.delays[DELAY];
  constexpr int kSize = size_of(kIt.in);
  constexpr RowPlace kIn = row_place(kNetwork, kIt.in), kOut = row_place(kNetwork, kIt.out);
  const long long item = static_cast<long long>(blockIdx.x) * kRowThreads + threadIdx.x;
  if (item >= 1LL * args.sequences * args.seq * kSize) return;
  const long long row = item / kSize;
  const int i = static_cast<int>(item % kSize), step = static_cast<int>(row % args.seq);
  const float* const in = args.in + kIn.at + i;
  float* const out = args.out + row * kOut.stride + kOut.at + i;
  if (step > 0) {
    *out = in[(row - 1) * kIn.stride];
    return;
  }
  const StatePlace state = layer_state(args, row / args.seq);
  *out = state.from != nullptr ? state.from[kIt.state_at + i] : 0.0f;
  if (state.to != nullptr) state.to[kIt.state_at + i] = in[(row + args.seq - 1) * kIn.stride];
}
