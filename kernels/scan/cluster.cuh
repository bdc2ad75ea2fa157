// Addresses and barriers of a cluster of blocks, shared by scan/chunked.cu and scan/short.cu.
#pragma once

#include "kernels/scan/frame.cuh"

namespace exphil {
namespace scan {

EXPHIL_DEVICE unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
// The same address in another block of the cluster.
EXPHIL_DEVICE unsigned cluster_address(const void* pointer, int block) {
  unsigned address = shared_address(pointer);
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(address), "r"(block));
  return address;
}
// A cluster barrier in two parts: every thread of the cluster must arrive before a wait ends; writes before
// the arrival are visible after the wait.
EXPHIL_DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
EXPHIL_DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

}  // namespace scan
}  // namespace exphil
