// A barrier of several blocks through a counter in global memory, about 1 us. All blocks must be resident
// (cooperative launch).
#pragma once

#include "kernels/policy/ptx.cuh"

namespace exphil {
namespace policy {

// Barrier of all threads of `blocks` blocks, a power of two. Their earlier writes (shared memory of the
// block, global memory) are visible to all of them after it. The counter only grows: a block derives the
// round from the value it read, so the counter is never reset, and the wrap-around at 2^32 falls between two
// rounds.
__device__ __forceinline__ void block_barrier(unsigned* counter, unsigned blocks) {
  __syncthreads();
  if (blocks == 1) return;
#ifndef EXPHIL_EMULATED_GRID  // which has grids of one block here
  if (threadIdx.x == 0) {
    const unsigned target = (add_release(counter, 1u) & ~(blocks - 1)) + blocks;
    while (static_cast<int>(load_acquire(counter) - target) < 0) {
    }
  }
  __syncthreads();
#else
  (void)counter;
#endif
}

}  // namespace policy
}  // namespace exphil
