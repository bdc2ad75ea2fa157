// Clusters of blocks: their barrier, and stores to each other's shared memory. Compiled with -D, where a
// kernel has teams of several blocks: TEAM, the blocks of a team, and CLUSTER, 1 where a team is a cluster.
// With EXPHIL_EMULATED_GRID the tests supply the functions, and run the kernels on a CPU.
#pragma once

// Below compute capability 9.0 there are no clusters, and no variant with them is launched; such a variant
// still compiles, without clusters.
#if defined(CLUSTER) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#undef CLUSTER
#define CLUSTER 0
#endif

// What a kernel declares whose teams of TEAM blocks are clusters.
#if defined(CLUSTER) && CLUSTER
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

#if defined(CLUSTER) && CLUSTER
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
#endif

}  // namespace device
}  // namespace exphil

#endif
