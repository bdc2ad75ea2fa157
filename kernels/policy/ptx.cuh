// Instructions of the policy kernels that CUDA C++ does not name. In a separate header, so that the tests can
// run the kernels on a CPU: with EXPHIL_EMULATED_GRID they supply these functions.
#pragma once

#include "kernels/common/cluster.cuh"
#include "kernels/common/launches.cuh"
#include "kernels/policy/dims.cuh"

namespace exphil {
namespace policy {

using device::await_launch_before;
using device::begin_launch_after;
using device::dynamic_shared;
#if EXPHIL_CLUSTERS
using device::cluster_arrive;
using device::cluster_sync;
using device::cluster_wait;
using device::store_cluster;
#endif

}  // namespace policy
}  // namespace exphil

#ifndef EXPHIL_EMULATED_GRID

namespace exphil {
namespace policy {

using device::launder;
using device::shared_address;

__device__ __forceinline__ unsigned load_acquire(const unsigned* from) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// Returns the value before. What happened before in this block is visible to who acquires the sum.
__device__ __forceinline__ unsigned add_release(unsigned* to, unsigned value) {
  unsigned before;
  asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(to), "r"(value)
               : "memory");
  return before;
}

// One 8-byte store to host memory.
__device__ __forceinline__ void store_system(unsigned long long* to, unsigned long long value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// One 8-byte load of what the host or another device may write meanwhile.
__device__ __forceinline__ unsigned long long load_system(const unsigned long long* from) {
  unsigned long long value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

// After such a load, what the host wrote before what was loaded is visible to this thread and to others that
// it tells; before such a store, the other way round.
__device__ __forceinline__ void fence_system() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}

// A clock of the device, with a resolution of a microsecond or better.
__device__ __forceinline__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

#if defined(STAGED) && STAGED
// One bulk copy from global to shared memory. Its completion is awaited by the parity of the barrier's first
// phase; no second phase is started, so any thread may wait any number of times.
__device__ __forceinline__ void bulk_init(unsigned long long* arrived) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(arrived)) : "memory");
}
__device__ __forceinline__ void bulk_publish_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// bytes: a multiple of 16.
__device__ __forceinline__ void bulk_copy(unsigned long long* arrived, void* to, const void* from,
                                          unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(arrived)), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(arrived))
      : "memory");
}
__device__ __forceinline__ void bulk_wait(const unsigned long long* arrived) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared.b64 p, [%1], 0;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(done)
        : "r"(shared_address(arrived))
        : "memory");
  }
}
#endif

}  // namespace policy
}  // namespace exphil

#endif
