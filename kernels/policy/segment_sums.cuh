// The segment sums of a product by one block of policy_step (policy/step.cu).
#pragma once

#include "kernels/policy/activations.cuh"
#include "kernels/policy/dot.cuh"

namespace exphil {
namespace policy {

// Calls sink(agent, task, sum, sharer) for every segment sum of a matrix of kRowsIn rows and kSegs segments
// with the AGENTS vectors x. Where there are few tasks, the agents are distributed over the remaining
// threads, or each sum is computed by kSharers neighbouring threads.
template <int kRowsIn, int kSegs, bool kShared, int kSharers = 1, class Sink>
__device__ __forceinline__ void segment_sums(const void* weights, const float* x, int x_stride, Sink sink) {
  constexpr int kTasks = kRowsIn * kSegs;
  constexpr int kPadded = round_up(kTasks, 32);
  constexpr int kSpread = least(AGENTS, power_of_two_within(THREADS / kPadded));
  constexpr int kEach = AGENTS / kSpread;
  const auto* w = static_cast<const Group*>(weights);
  static_assert(kSharers == 1 || AGENTS == 1, "agents, or threads that share one's pushes");
  for (int item = thread(); item < kPadded * kSpread * kSharers; item += THREADS) {
    const int task = item / kSharers % kPadded;
    if (task >= kTasks) continue;
    const int first = item / kSharers / kPadded * kEach;
    const float* values = x + first * x_stride + task / kRowsIn * kSegment;
    float sum[kEach] = {};
#pragma unroll
    for (int j = 0; j < kSegment / 4; ++j) {
      const float4 weight = widen(kShared && STAGED ? w[j * kTasks + task] : __ldg(w + j * kTasks + task));
#pragma unroll
      for (int a = 0; a < kEach; ++a) {
        sum[a] = dot4(weight, *reinterpret_cast<const float4*>(values + a * x_stride + 4 * j), sum[a]);
      }
    }
#pragma unroll
    for (int a = 0; a < kEach; ++a) sink(first + a, task, sum[a], item % kSharers);
  }
}

}  // namespace policy
}  // namespace exphil
