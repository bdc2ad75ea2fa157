// Clusters of blocks, by instructions that CUDA C++ does not name: their barriers, and stores to each other's
// shared memory. Compiled with -D, where a kernel has teams of several blocks: TEAM, the blocks of a team,
// and CLUSTER, 1 where a team is a cluster. With EXPHIL_EMULATED_GRID the tests supply the functions, and run
// the kernels on a CPU.
#pragma once

// Below compute capability 9.0 there are no clusters, and no variant with them is launched; such a variant
// still compiles, without clusters.
#if defined(CLUSTER) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#undef CLUSTER
#define CLUSTER 0
#endif
#if defined(CLUSTER) && CLUSTER
#define EXPHIL_CLUSTERS 1
#else
#define EXPHIL_CLUSTERS 0
#endif

// What a kernel declares whose teams of TEAM blocks are clusters.
#if EXPHIL_CLUSTERS
#define TEAM_SHAPE __cluster_dims__(TEAM, 1, 1)
#else
#define TEAM_SHAPE
#endif

#ifndef EXPHIL_EMULATED_GRID

namespace exphil {
namespace device {

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ float* dynamic_shared() {
  extern __shared__ __align__(128) float exphil_dynamic_shared[];
  return exphil_dynamic_shared;
}

// The same address or number, with its origin hidden from the compiler.
template <class T>
__device__ __forceinline__ T* launder(T* pointer) {
  T* same;
  asm volatile("mov.u64 %0, %1;" : "=l"(same) : "l"(pointer));
  return same;
}
__device__ __forceinline__ int launder(int value) {
  int same;
  asm volatile("mov.u32 %0, %1;" : "=r"(same) : "r"(value));
  return same;
}
// The same of shared memory. Otherwise the compiler reads where the block's begins again and again, which
// takes some 20 cycles.
template <class T>
__device__ __forceinline__ T* launder_shared(T* pointer) {
  unsigned same;
  asm volatile("mov.u32 %0, %1;" : "=r"(same) : "r"(shared_address(pointer)));
  return static_cast<T*>(__cvta_shared_to_generic(same));
}

#if EXPHIL_CLUSTERS
// Barrier of all threads of the cluster; their earlier writes to shared memory are visible after it.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\t"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// The same barrier in two parts: what is written before the first is visible after the second.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
// The first part where nothing is written before it but what publish_arrivals() has published.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// Stores to the same address in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ void store_cluster(float* place, int rank, float value) {
  unsigned remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(place)), "r"(rank));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value) : "memory");
}
__device__ __forceinline__ void store_cluster(float4* place, int rank, float4 value) {
  unsigned remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(place)), "r"(rank));
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(remote), "f"(value.x), "f"(value.y),
               "f"(value.z), "f"(value.w)
               : "memory");
}

// ---- threads of a block with different work ----

// The first threads of the block, whole warps and always as many, wait for each other.
__device__ __forceinline__ void sync_some(int threads) {
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}
// The four warps of an aligned group then have so many registers for each thread, a multiple of 8: those that
// some give others can take. On devices of compute capability 9.0; on others they keep what they have.
template <int Count>
__device__ __forceinline__ void take_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
#endif
}
template <int Count>
__device__ __forceinline__ void give_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
#endif
}

// ---- stores whose bytes the receiver counts ----
//
// A word of shared memory counts the bytes that have arrived. Each round one thread of the block says how
// many it expects, before or after the first of them; the round ends when all are there. Who waits then sees
// them. That is one way through the cluster, where a store and a barrier are two ways and more.
using Arrivals = unsigned long long;
__device__ __forceinline__ void begin_arrivals(Arrivals* arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(arrivals)) : "memory");
}
// Before a barrier of the cluster, after which the other blocks may send.
__device__ __forceinline__ void publish_arrivals() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect_bytes(Arrivals* arrivals, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(arrivals)), "r"(bytes)
               : "memory");
}
// As store_cluster; block `rank` counts 16 bytes.
__device__ __forceinline__ void send(float4* place, int rank, float4 value, Arrivals* arrivals) {
  unsigned remote, counter;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(place)), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(counter)
               : "r"(shared_address(arrivals)), "r"(rank));
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
          remote),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(counter)
      : "memory");
}
__device__ __forceinline__ void send(float* place, int rank, float value, Arrivals* arrivals) {  // 4 bytes
  unsigned remote, counter;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(place)), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(counter)
               : "r"(shared_address(arrivals)), "r"(rank));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(remote),
               "r"(__float_as_uint(value)), "r"(counter)
               : "memory");
}
// parity: of the round, 0 for the first one. Whether the round has ended, as far as is known at once.
__device__ __forceinline__ bool have_bytes(const Arrivals* arrivals, unsigned parity) {
  unsigned done = 0;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
      "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(shared_address(arrivals)), "r"(parity)
      : "memory");
  return done != 0;
}
__device__ __forceinline__ void await_bytes(const Arrivals* arrivals, unsigned parity) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(done)
        : "r"(shared_address(arrivals)), "r"(parity)
        : "memory");
  }
}
#endif

}  // namespace device
}  // namespace exphil

#endif
