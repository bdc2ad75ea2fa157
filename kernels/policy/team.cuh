// A team: TEAM blocks that run one group of agents through a policy step. Each block has a part of every
// weight matrix. It pushes results that the others need to the board of every block, a shared-memory region
// with the same layout in all blocks; a barrier of the team makes the pushes visible.
//
// CLUSTER=1 (compute capability 9.0 and later): the team is a thread-block cluster. Pushes are stores to the
// other blocks' shared memory and the barrier is the hardware's, about 0.2 us instead of 1 us through L2.
// CLUSTER=0: pushes go to a board in global memory, which each block copies after a barrier on a counter
// there. All blocks must be resident (cooperative launch) and there is one team.
#pragma once

#include "kernels/policy/barrier.cuh"

namespace exphil {
namespace policy {

class TeamBarrier {
 public:
  __device__ explicit TeamBarrier(unsigned* counter) : counter_(counter) {}

  // Barrier of all threads of all blocks of the team. Their earlier writes (shared memory of the team, global
  // memory) are visible to all of them after it.
  __device__ void sync() const {
    if constexpr (TEAM == 1) {
      __syncthreads();
    } else {
#if CLUSTER
      cluster_sync();
#else
      grid_barrier(counter_);  // there is one team
#endif
    }
  }

  // The same in two parts, for work between them that needs nothing from the other blocks. Returns what the
  // second part needs.
  __device__ unsigned arrive() const {
    if constexpr (TEAM == 1) {
      return 0;
    } else {
#if CLUSTER
      cluster_arrive();
      return 0;
#else
      return arrive_at_barrier(counter_);
#endif
    }
  }
  __device__ void wait(unsigned arrived) const {
    if constexpr (TEAM == 1) {
      __syncthreads();
    } else {
#if CLUSTER
      (void)arrived;
      cluster_wait();
#else
      wait_at_barrier(counter_, arrived);
#endif
    }
  }

 private:
  unsigned* counter_;
};

class Board {
 public:
  __device__ Board(float* shared, float* global, TeamBarrier barrier)
      : shared_(shared), global_(global), barrier_(barrier) {}

  // Writes value to the address that corresponds to `place` in the boards of blocks first, first + step, ...:
  // several threads with the same value may share the work.
  __device__ void push(float* place, float value, int first, int step) const {
    if constexpr (TEAM == 1) {
      if (first == 0) *place = value;
    } else {
#if CLUSTER
#pragma unroll
      for (int rank = first; rank < TEAM; rank += step) store_cluster(place, rank, value);
#else
      (void)step;
      if (first == 0) __stcg(global_ + (place - shared_), value);
#endif
    }
  }

  // After it, [begin, begin + count) of this block's board holds all values that were pushed there before.
  // met: the blocks have met since the last of them was.
  __device__ void exchange(float* begin, int count, bool met = false) const {
    if (!met) barrier_.sync();
    if constexpr (TEAM > 1 && CLUSTER == 0) {
      const float* source = global_ + (begin - shared_);
      for (int i = static_cast<int>(threadIdx.x); i < count; i += THREADS) begin[i] = __ldcg(source + i);
      __syncthreads();
    } else {
      (void)begin, (void)count;
    }
  }

  // The same in two parts: everything is pushed; then [begin, begin + count) is there.
  __device__ unsigned pushed() const {
    return barrier_.arrive();
  }
  __device__ void collect(float* begin, int count, unsigned pushed) const {
    barrier_.wait(pushed);
    exchange(begin, count, true);
  }

  __device__ void sync() const {
    barrier_.sync();
  }

 private:
  float* shared_;
  float* global_;
  TeamBarrier barrier_;
};

}  // namespace policy
}  // namespace exphil
