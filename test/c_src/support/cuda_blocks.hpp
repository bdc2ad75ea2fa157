// What depends on a kernel's own macros, after cuda_names.hpp: how many blocks run together, their shared
// memory, and what they send to each other.
#pragma once

// Blocks that run together: those of the policy's kernels that are compiled for teams of several blocks.
#if defined(TEAM) && defined(CLUSTER) && CLUSTER
#define EXPHIL_EMULATED_CLUSTER TEAM
constexpr std::size_t kMostBlocks = 16;
#else
#define EXPHIL_EMULATED_CLUSTER 0
constexpr std::size_t kMostBlocks = 1;
#endif

// The shared memory of each block, and the bytes behind it that grid.hpp checks.
constexpr std::size_t kSharedBytes = 227 * 1024 + exphil::grid::kBehind;
extern "C" {
alignas(128) inline thread_local float4 shared_memory[kMostBlocks * kSharedBytes / sizeof(float4)];
}

namespace exphil::device {
#if EXPHIL_EMULATED_CLUSTER
inline void cluster_sync() {
  grid::sync_cluster();
}
inline void cluster_arrive() {}
inline void cluster_arrive_relaxed() {}
inline void cluster_wait() {
  grid::sync_cluster();
}
template <class T>
void store_cluster(T* place, int rank, T value) {
  *grid::in_cluster(place, rank) = value;
}
using grid::Arrivals;
inline void begin_arrivals(Arrivals* arrivals) {
  *arrivals = {};
}
inline void publish_arrivals() {}
inline void sync_some(int threads) {
  grid::sync_some(1, threads);
}
template <int Count>
void take_registers() {}
template <int Count>
void give_registers() {}
inline void expect_bytes(Arrivals* arrivals, unsigned bytes) {
  arrivals->expect(bytes);
}
template <class T>
void send(T* place, int rank, T value, Arrivals* arrivals) {
  store_cluster(place, rank, value);
  grid::in_cluster(arrivals, rank)->receive(sizeof(value));
  grid::pause();
}
inline bool have_bytes(const Arrivals* arrivals, unsigned parity) {
  return arrivals->have(parity);
}
inline void await_bytes(const Arrivals* arrivals, unsigned parity) {
  grid::await_bytes(arrivals, parity);
}
#endif
inline float* dynamic_shared() {
  return &shared_memory[kMostBlocks > 1 ? blockIdx.x * (kSharedBytes / sizeof(float4)) : 0].x;
}
}  // namespace exphil::device

// What emulation/grid.cpp asks of each kernel.
extern "C" __attribute__((used, visibility("default"))) inline exphil::grid::Image emulated_image() {
  return {reinterpret_cast<unsigned char*>(shared_memory), kSharedBytes, EXPHIL_EMULATED_CLUSTER,
          kMostBlocks};
}
