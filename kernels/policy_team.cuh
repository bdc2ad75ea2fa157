// A team: TEAM blocks that carry one group of agents through a policy step together. Each block owns a slice
// of every weight matrix; what the others need of its results it pushes onto everybody's board, a
// shared-memory region of one layout in all blocks, and a barrier of the team makes the pushes visible.
//
// CLUSTER=1 (compute capability 9.0 and later): the team is a thread-block cluster. Pushes are stores into
// the other blocks' shared memory and the barrier is the hardware's, about 0.2 us instead of 1 us through L2.
// CLUSTER=0: pushes go to a board in global memory, which each block copies after a barrier on a counter
// there. All blocks must be resident (cooperative launch) and there is one team.
#pragma once

#include "policy_dims.cuh"

namespace exphil {
namespace policy {

class TeamBarrier {
 public:
  __device__ explicit TeamBarrier(unsigned* counter) : counter_(counter) {}

  // Every thread of every block of the team. What they wrote before (shared memory of the team, global
  // memory) is visible to all of them after.
  __device__ void sync() const {
    if constexpr (TEAM == 1) {
      __syncthreads();
    } else {
#if CLUSTER
      asm volatile(
          "barrier.cluster.arrive.release.aligned;\n\t"
          "barrier.cluster.wait.acquire.aligned;" ::
              : "memory");
#else
      __syncthreads();
      if (threadIdx.x == 0) wait_for_team();
      __syncthreads();
#endif
    }
  }

 private:
  // The counter only grows: the round a block is in follows from the value it found, so nothing is ever
  // reset. TEAM is a power of two, so the wrap-around at 2^32 falls between two rounds.
  __device__ void wait_for_team() const {
    __threadfence();
    const unsigned found = atomicAdd(counter_, 1u);
    const unsigned target = (found / TEAM + 1) * TEAM;
    unsigned now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter_) : "memory");
    } while (static_cast<int>(now - target) < 0);
    __threadfence();
  }

  unsigned* counter_;
};

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

class Board {
 public:
  __device__ Board(float* shared, float* global, TeamBarrier barrier)
      : shared_(shared), global_(global), barrier_(barrier) {}

  // Puts value where `place`, in this block's board, stands in the boards of every block rank = first,
  // first + step, ...: several threads that hold the same value may share the work.
  __device__ void push(float* place, float value, int first, int step) const {
    if constexpr (TEAM == 1) {
      if (first == 0) *place = value;
    } else {
#if CLUSTER
      const unsigned local = shared_address(place);
#pragma unroll
      for (int rank = first; rank < TEAM; rank += step) {
        unsigned remote;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value) : "memory");
      }
#else
      (void)step;
      if (first == 0) __stcg(global_ + (place - shared_), value);
#endif
    }
  }

  // After it, [begin, begin + count) of this block's board holds what everybody pushed there before.
  __device__ void exchange(float* begin, int count) const {
    barrier_.sync();
    if constexpr (TEAM > 1 && CLUSTER == 0) {
      const float* source = global_ + (begin - shared_);
      for (int i = static_cast<int>(threadIdx.x); i < count; i += THREADS) begin[i] = __ldcg(source + i);
      __syncthreads();
    } else {
      (void)begin, (void)count;
    }
  }

  __device__ void sync() const {
    barrier_.sync();
  }

 private:
  float* shared_;
  float* global_;
  TeamBarrier barrier_;
};

// Brings `bytes` (a multiple of 16) from global into this block's shared memory by the bulk copy engine;
// `arrived` counts as one phase. One thread calls copy; any thread may wait, any number of times, as no
// second phase is ever started.
class BulkCopy {
 public:
  __device__ explicit BulkCopy(unsigned long long* arrived) : arrived_(shared_address(arrived)) {}

#if STAGED
  __device__ void init() const {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(arrived_) : "memory");
  }
  __device__ static void publish_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __device__ void copy(float* to, const float* from, unsigned bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(arrived_), "r"(bytes) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(arrived_)
        : "memory");
  }
  __device__ void wait() const {
    unsigned done = 0;
    while (done == 0) {
      asm volatile(
          "{\n\t.reg .pred p;\n\t"
          "mbarrier.try_wait.parity.shared.b64 p, [%1], 0;\n\t"
          "selp.u32 %0, 1, 0, p;\n\t}"
          : "=r"(done)
          : "r"(arrived_)
          : "memory");
    }
  }
#endif

 private:
  unsigned arrived_;
};

}  // namespace policy
}  // namespace exphil
