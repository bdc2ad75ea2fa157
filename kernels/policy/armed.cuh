// The wait of policy_step_armed (policy/step.cu), which is launched before its frame's observation is there.
// The host writes the observation into its own memory, each value in a word with the launch's number; block 0
// of the team reads these words over and over and passes them on. So the flag and the data are one read over
// the bus, of about a microsecond.
//
// The launch begins while the one of the frame before still runs, and loads its weights meanwhile. Everything
// else, from the first barrier on, comes after that one's end: the state that it writes, a board in global
// memory, and the words, of which the later launch must not be the first to write.
//
// The wait is bounded by a clock of the device, and the host may cancel it. Block 0 decides alone whether the
// frame is computed, so the host, the clock and the blocks cannot disagree. A launch that ends without the
// observation has written nothing but that it has ended.
#pragma once

#include "kernels/policy/step.cuh"

namespace exphil {
namespace policy {

// False where the launch was cancelled or its time is over. For one agent.
__device__ __forceinline__ bool Step::await(const ArmedArguments& armed) {
  static_assert(AGENTS == 1 && kActivations.go.at == kActivations.vectors[kNetwork.frame].end(),
                "exchanged together");
  load_places(0);
  hold_first(0);
  await_launch_before();
  board_.await_open();
  __syncthreads();
  load_recalled(0), load_states(0);
  early_products(0, kEarlyLayers);
  if (rank_ == 0) push_obs(armed);
  board_.exchange(kFrameSize + 1);
  board_.copy(act_.vector<kNetwork.frame>()[0], kFrameSize + 1);
  if (*act_.go() == 0.0f) return false;
  begin_launch_after();
  return true;
}

// In block 0: waits for the observation, and pushes it to every block together with whether it came.
__device__ __forceinline__ void Step::push_obs(const ArmedArguments& armed) {
  constexpr int kPer = divide_up(kFrameSize, THREADS);
  const unsigned long long end = nanoseconds() + armed.nanoseconds;
  const unsigned long long number = static_cast<unsigned long long>(args_.sequence) << 32;
  unsigned long long words[kPer];
#pragma unroll
  for (int i = 0; i < kPer; ++i)
    words[i] = thread() + i * THREADS < kFrameValues ? 0 : number;  // zeros behind it
  bool arrived, over;
  do {
    // All loads are under way before the first of them is awaited.
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if (words[i] >> 32 != args_.sequence) words[i] = load_system(armed.obs + thread() + i * THREADS);
    }
    const unsigned long long cancelled = thread() == 0 ? load_system(armed.cancelled) : 0;
    arrived = true;
#pragma unroll
    for (int i = 0; i < kPer; ++i) arrived = arrived && words[i] >> 32 == args_.sequence;
    over = thread() == 0 &&
           (static_cast<int>(static_cast<unsigned>(cancelled) - args_.sequence) >= 0 || nanoseconds() > end);
    arrived = __syncthreads_and(arrived) != 0;
    over = __syncthreads_or(over) != 0;
  } while (!arrived && !over);
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const int k = thread() + i * THREADS;
    if (k >= kFrameSize) continue;
    board_.push(act_.vector<kNetwork.frame>()[0] + k, __uint_as_float(static_cast<unsigned>(words[i])), 0, 1);
  }
  if (thread() != 0) return;
  board_.push(act_.go(), arrived ? 1.0f : 0.0f, 0, 1);
  if (!arrived) store_system(armed.ended, args_.sequence);
}

// A block must not end while copies into its shared memory are under way.
__device__ __forceinline__ void Step::finish_staging() const {
  for (int i = kTeam.input.bytes > 0 ? 0 : 1; i < 2 + kNetwork.layers; ++i) section(i, 0);
  for (int l = 1; STAGED == kStageAll && l < kNetwork.layers; ++l) staged_first(l);
}

}  // namespace policy
}  // namespace exphil
