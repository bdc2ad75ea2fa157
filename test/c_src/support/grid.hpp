// Runs kernels on the CPU: every CUDA thread of a block is a fibre, and fibres switch only at barriers and
// shuffles. Blocks run one after another in the order of their index, so a block that waits for a later one
// is detected; or all of them together, in clusters, for kernels whose blocks exchange values. Include it
// before the kernel's source, which then needs no CUDA compiler. For tests of the kernels' logic without a
// GPU; one grid at a time. Copies complete when they are started. With FAKE_CUDA_PAUSES in the environment a
// warp stops after each value that it sends to another block, until all others have had their turn.
//
// This is what a kernel needs; grid_run.hpp runs it. They are apart because hundreds of kernels are compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/half.hpp"

#define EXPHIL_EMULATED_GRID
#define EXPHIL_DEVICE inline
#define __device__
#define __host__
#define __forceinline__ inline
#define __global__ __attribute__((visibility("default")))
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
// How the state of the grid is declared: here; or for kernels that are compiled apart, where they are not
// (cuda_names.hpp).
#ifndef EXPHIL_GRID_STATE
#define EXPHIL_GRID_STATE inline
#endif

// For what leaves a stack or comes back to it. AddressSanitizer would take every jump for the end of the
// frames that it leaves.
#define EXPHIL_SWITCH __attribute__((noinline, no_sanitize("address")))

namespace exphil::grid {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

enum class Waiting { no, turn, warp, some, block, cluster, grid, bytes, done };

// Where a fibre continues. The compiler's own setjmp and longjmp, because those of the C library take ten
// times as long: they keep every register, and look for handlers of cancelled threads.
using Place = void* [5];

struct Arrivals;

// A fibre is begun by setcontext and continued by a jump, which costs no system call. It is begun once: where
// a kernel has ended, it waits for that of the next block.
struct Fibre {
  Place place;
  bool begun = false;
  Waiting waiting = Waiting::no;
  Index index, block;
  // The words that it passes to shuffles, one after the other in the two places: a lane that passes a word
  // has read those of the shuffle before the last one, and so have all others that it met there.
  std::uint32_t words[2] = {};
  unsigned turn = 0;
  // What it waits for where it waits for bytes: the end of the round of this parity.
  const Arrivals* arrivals = nullptr;
  unsigned parity = 0;
  std::size_t barrier = 0;  // the number, where it waits for some
};

// Counts the bytes that one block is sent in a round, which ends when as many as were expected are there
// (kernels/common/cluster.cuh).
struct Arrivals {
  std::int32_t bytes = 0;  // that are still to come
  std::uint16_t expected = 0, rounds = 0;

  bool have(unsigned parity) const { return (rounds & 1u) != parity; }
  void expect(std::size_t count) {
    expected = 1;
    add(static_cast<std::int32_t>(count));
  }
  void receive(std::size_t count) { add(-static_cast<std::int32_t>(count)); }

 private:
  void add(std::int32_t to_come) {
    bytes += to_come;
    if (expected != 0 && bytes == 0) expected = 0, ++rounds;
  }
};
static_assert(sizeof(Arrivals) == 8, "as on the device");

// Unwritten shared memory reads as NaN; the bytes behind it must not change.
constexpr std::size_t kBehind = 4096;

// A barrier of a block: the threads that come to it in a round, and how many have, and need not wait.
constexpr std::size_t kBarriers = 16;
struct Barrier {
  std::size_t threads = 0, arrived = 0;
};

struct Machine {
  Place scheduler;
  Fibre* fibres = nullptr;  // of the blocks that run; behind them those that earlier grids needed
  std::size_t count = 0;    // of the blocks that run
  Fibre *current = nullptr, *end_of_warp = nullptr;
  bool deadlock = false;
  // Dynamic shared memory of each block that runs, shared_stride bytes apart, kBehind bytes longer than the
  // kernel's; null where there is none.
  unsigned char* shared = nullptr;
  std::size_t shared_bytes = 0, shared_stride = 0;
  std::size_t cluster = 0;      // blocks in a cluster; 0: the blocks run one after another
  Barrier* barriers = nullptr;  // kBarriers of each block that runs
  bool pauses = false;          // after each value that is sent, until all other warps have had their turn
};
EXPHIL_GRID_STATE Machine machine;

// A kernel that was compiled alone (cuda_names.hpp): the shared memory of this thread's blocks, so many bytes
// apart, and how many blocks make a cluster and may run.
struct Image {
  unsigned char* shared;
  std::size_t stride, cluster, most_blocks;
};

inline Fibre& lane_of_same_warp(int lane) {
  const std::size_t self = static_cast<std::size_t>(machine.current - machine.fibres);
  return machine.fibres[self / 32 * 32 + static_cast<std::size_t>(lane)];
}

}  // namespace exphil::grid

EXPHIL_GRID_STATE exphil::grid::Index threadIdx, blockIdx, blockDim, gridDim;

namespace exphil::grid {

// The fibre becomes the one that runs, at its place.
inline void make_current(Fibre& fibre) {
  machine.current = &fibre;
  threadIdx = fibre.index;
  blockIdx = fibre.block;
}

// Goes on with the next fibre of the warp, or with the scheduler where that one has not begun or there is
// none. Functions of their own keep the jumps apart from the places: the compiler does not support both in
// one.
[[noreturn]] EXPHIL_SWITCH inline void go_on() {
  Fibre* next = machine.current;
  do {
    ++next;
  } while (next < machine.end_of_warp && next->waiting != Waiting::no);
  if (next >= machine.end_of_warp || !next->begun) __builtin_longjmp(machine.scheduler, 1);
  make_current(*next);
  __builtin_longjmp(next->place, 1);
}
EXPHIL_SWITCH inline void yield(Waiting waiting) {
  machine.current->waiting = waiting;
  if (__builtin_setjmp(machine.current->place) == 0) go_on();
}
inline void sync_block() {
  yield(Waiting::block);
}
// Barrier `number` of the block, of so many threads; arrive_some() does not wait.
inline Barrier& barrier_of_some(int number, int threads) {
  const auto self = static_cast<std::size_t>(machine.current - machine.fibres);
  const std::size_t block = self / (std::size_t{blockDim.x} * blockDim.y * blockDim.z);
  Barrier& barrier = machine.barriers[block * kBarriers + static_cast<std::size_t>(number)];
  barrier.threads = static_cast<std::size_t>(threads);
  return barrier;
}
inline void sync_some(int number, int threads) {
  barrier_of_some(number, threads);
  machine.current->barrier = static_cast<std::size_t>(number);
  yield(Waiting::some);
}
inline void arrive_some(int number, int threads) {
  ++barrier_of_some(number, threads).arrived;
}
inline void sync_cluster() {
  yield(Waiting::cluster);
}
inline void sync_grid() {
  yield(Waiting::grid);
}
inline void pause() {
  if (machine.pauses) yield(Waiting::turn);
}
inline void await_bytes(const Arrivals* arrivals, unsigned parity) {
  machine.current->arrivals = arrivals, machine.current->parity = parity;
  if (!arrivals->have(parity)) yield(Waiting::bytes);
}
// The same place in the shared memory of block `rank` of the cluster.
template <class T>
T* in_cluster(T* place, int rank) {
  const auto own = static_cast<std::ptrdiff_t>(blockIdx.x % machine.cluster);
  return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(place) +
                              (rank - own) * static_cast<std::ptrdiff_t>(machine.shared_stride));
}
// How many threads of the block pass true; every thread calls it. For blocks that run one after another.
inline int count_in_block(bool value) {
  static int count = 0;
  count += value ? 1 : 0;
  sync_block();
  const int all = count;
  sync_block();
  count -= value ? 1 : 0;
  return all;
}
inline void sync_warp() {
  yield(Waiting::warp);
}

// The word of `lane` of the same warp; every lane calls it.
inline std::uint32_t from_lane(std::uint32_t word, int lane) {
  const unsigned turn = machine.current->turn ^= 1;
  machine.current->words[turn] = word;
  sync_warp();
  return lane_of_same_warp(lane).words[turn];
}
// Of four or eight bytes.
template <class T>
T shuffle(T value, int lane) {
  static_assert(sizeof(T) % 4 == 0);
  std::uint32_t words[sizeof(T) / 4];
  std::memcpy(words, &value, sizeof(T));
  for (std::uint32_t& word : words) word = from_lane(word, lane);
  std::memcpy(&value, words, sizeof(T));
  return value;
}

}  // namespace exphil::grid
