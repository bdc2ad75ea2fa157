// A barrier of all blocks of a grid through a counter in global memory, about 1 us. All blocks must be
// resident (cooperative launch).
#pragma once

#include "kernels/policy/ptx.cuh"

namespace exphil {
namespace policy {

// The barrier in two parts, for work between them that needs nothing from the other blocks. Earlier writes of
// the blocks (shared memory of the block, global memory) are visible to all of them after the wait. Block 0
// adds so much, and every other block 1, that all of them together add 2^31: the sign changes once a round,
// and the counter is never reset.
//
// Returns what the wait needs, in thread 0.
__device__ __forceinline__ unsigned arrive_at_barrier(unsigned* counter) {
  __syncthreads();
#ifndef EXPHIL_EMULATED_GRID
  if (threadIdx.x == 0 && gridDim.x > 1) {
    return add_release(counter, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u);
  }
#endif
  return 0;
}
__device__ __forceinline__ void wait_at_barrier(const unsigned* counter, unsigned before) {
#ifndef EXPHIL_EMULATED_GRID
  if (threadIdx.x == 0 && gridDim.x > 1) {
    while (static_cast<int>(load_acquire(counter) ^ before) >= 0) {
    }
  }
  __syncthreads();
#else
  grid_sync();
#endif
}

__device__ __forceinline__ void grid_barrier(unsigned* counter) {
  wait_at_barrier(counter, arrive_at_barrier(counter));
}

}  // namespace policy
}  // namespace exphil
