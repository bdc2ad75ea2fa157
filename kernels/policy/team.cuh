// A team: TEAM blocks that run one group of agents through a policy step. Each block has a part of every
// weight matrix. It pushes results that the others need to the board of every block, a region of shared
// memory with the same layout in all blocks. That goes in rounds: all blocks push, and each goes on when it
// has what all of them have pushed.
//
// CLUSTER=1 (compute capability 9.0 and later): the team is a thread-block cluster. Pushes are stores to the
// other blocks' shared memory, whose bytes the receiver counts: about 0.25 us from the push to the reader. A
// barrier of the cluster, which COUNTS=0 has instead, would also wait for what the threads have under way to
// and from memory, 0.7 to 1 us (bench/results/gated.md).
// CLUSTER=0: pushes go to a board in global memory, which each block copies after a barrier on a counter
// there. All blocks must be resident (cooperative launch) and there is one team.
#pragma once

#include "kernels/policy/barrier.cuh"

namespace exphil {
namespace policy {

class Board {
 public:
  // words: two, in which a block of a cluster counts. token: a float that nobody reads.
  __device__ Board(float* shared, float* global, unsigned* barrier, unsigned long long* words, float* token)
      : shared_(shared), global_(global), barrier_(barrier), words_(words), token_(token) {}

  // Before the first push of a team: every block has opened its board, which one thread has begun. Of the
  // groups after the first one: every block has read what the last one has put there.
  __device__ void begin() const {
#if CLUSTER
    if constexpr (TEAM == 1) return;
    device::begin_arrivals(word(0)), device::begin_arrivals(word(1));
    device::publish_arrivals();
#endif
  }
  __device__ void open() const {
#if CLUSTER
    if constexpr (TEAM > 1) device::cluster_arrive_relaxed();
#endif
  }
  __device__ void open_again() const {
#if CLUSTER
    if constexpr (TEAM > 1) cluster_arrive();
#endif
  }
  __device__ void await_open() const {
#if CLUSTER
    if constexpr (TEAM > 1) cluster_wait();
#else
    if constexpr (TEAM > 1) grid_barrier(barrier_);  // there is one team
#endif
  }

  // Writes value to the address that corresponds to `place` in the boards of blocks first, first + step, ...:
  // several threads with the same value may share the work.
  //
  // A block that has the round before this one may push while another one still reads what came with that.
  // So what is read in the same round as it is written anew has two places, which take turns; everything else
  // is read in an earlier round. `place` may be such that a block of the round before last reads it, because
  // it has pushed since.
  __device__ void push(float* place, float value, int first, int step) const {
    if constexpr (TEAM == 1) {
      if (first == 0) *place = value;
    } else {
#if CLUSTER
#pragma unroll
      for (int rank = first; rank < TEAM; rank += step) {
        if constexpr (kCounts) {
          device::send(place, rank, value, word(round_ % 2));
        } else {
          store_cluster(place, rank, value);
        }
      }
#else
      (void)step;
      if (first == 0) __stcg(global_ + (place - shared_), value);
#endif
    }
  }

  // The end of a round in two parts, for work between them that needs nothing from the other blocks: this
  // block has pushed its part of `floats`, which every block gets; and all blocks' parts are there. What the
  // block's own threads have written to shared memory is, too.
  //
  // A block that has nothing of a vector pushes all the same, a token: so that none is two rounds ahead of
  // another one, whose word would count its bytes among those of the wrong round.
  __device__ unsigned pushed(int floats) const {
    if constexpr (TEAM == 1) return 0;
#if CLUSTER
    if constexpr (!kCounts) {
      cluster_arrive();
      return 0;
    }
    if (threadIdx.x == 0) device::expect_bytes(word(round_ % 2), 4u * static_cast<unsigned>(floats + TEAM));
    if (threadIdx.x < TEAM) {
      device::send(token_, static_cast<int>(threadIdx.x), 0.0f, word(round_ % 2));
    }
    __syncwarp();  // who says how many bytes are expected does not come behind those that wait for them
    return 0;
#else
    (void)floats;
    return arrive_at_barrier(barrier_);
#endif
  }
  __device__ void receive(unsigned pushed) {
    if constexpr (TEAM == 1) {
      __syncthreads();
    } else {
#if CLUSTER
      (void)pushed;
      if constexpr (kCounts) {
        device::await_bytes(word(round_ % 2), round_ / 2 % 2);
        ++round_;
        __syncthreads();
      } else {
        cluster_wait();
      }
#else
      wait_at_barrier(barrier_, pushed);
#endif
    }
  }
  __device__ void exchange(int floats) {
    receive(pushed(floats));
  }

  // After it, [begin, begin + count) of this block's board has what came in the last round.
  __device__ void copy(float* begin, int count) const {
    if constexpr (TEAM > 1 && CLUSTER == 0) {
      const float* source = global_ + (begin - shared_);
      for (int i = static_cast<int>(threadIdx.x); i < count; i += THREADS) begin[i] = __ldcg(source + i);
      __syncthreads();
    } else {
      (void)begin, (void)count;
    }
  }

 private:
#if CLUSTER
  static constexpr bool kCounts = COUNTS != 0;
  __device__ device::Arrivals* word(unsigned index) const {
    return reinterpret_cast<device::Arrivals*>(words_ + index);
  }
#endif

  float* shared_;
  float* global_;
  unsigned* barrier_;
  unsigned long long* words_;
  float* token_;
  unsigned round_ = 0;
};

}  // namespace policy
}  // namespace exphil
