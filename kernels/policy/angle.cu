// Cumulative angles over many rows: sequences in order; a batch of agents is sequences of one frame. Compiled
// with the network and -D: ANGLE, its index.
#include "kernels/policy/rows.cuh"

using namespace exphil::policy;

// A thread for each angle of a sequence, through all its frames. grid: ceil(sequences * angles of all heads /
// kRowThreads).
extern "C" __global__ void __launch_bounds__(kRowThreads) policy_angle(const AngleArguments args) {
  follow_launch_before();
  constexpr Angle kIt = kNetwork.angles[ANGLE];
  constexpr int kAngles = values_of(kIt.rate), kAll = kIt.heads * kAngles, kAhead = 4;
  constexpr RowPlace kRate = row_place(kNetwork, kIt.rate), kDt = row_place(kNetwork, kIt.dt);
  constexpr RowPlace kOut = row_place(kNetwork, kIt.out);
  const long long item = static_cast<long long>(blockIdx.x) * kRowThreads + threadIdx.x;
  if (item >= 1LL * args.sequences * kAll) return;
  const int sequence = static_cast<int>(item / kAll), i = static_cast<int>(item % kAll);
  const StatePlace state = layer_state(args, sequence);
  float angle = state.from != nullptr ? state.from[kIt.state_at + i] : 0.0f;
  const long long first_row = 1LL * sequence * args.seq;
  const float* const rates = args.rate + kRate.at + i % kAngles;
  const float* const dts = args.dt + kDt.at + i / kAngles;
  for (int first = 0; first < args.seq; first += kAhead) {
    float rate[kAhead], dt[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const long long row = first_row + least(first + k, args.seq - 1);
      rate[k] = rates[row * kRate.stride], dt[k] = dts[row * kDt.stride];
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (first + k >= args.seq) continue;
      angle = next_angle(angle, rate[k], dt[k]);
      *reinterpret_cast<float2*>(args.out + (first_row + first + k) * kOut.stride + kOut.at + 2 * i) =
          turn_of(angle);
    }
  }
  if (state.to != nullptr) state.to[kIt.state_at + i] = angle;
}
