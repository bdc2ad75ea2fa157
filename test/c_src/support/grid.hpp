// Runs kernels on the CPU: every CUDA thread of a block is a fibre, and fibres switch only at barriers and
// shuffles. Blocks run one after another in the order of their index, so a block that waits for a later one
// is detected; or all of them together, in clusters, for kernels whose blocks exchange values. Include it
// before the kernel's source, which then needs no CUDA compiler. For tests of the kernels' logic without a
// GPU; one grid at a time. Copies complete when they are started; named barriers are not emulated.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

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

namespace exphil::grid {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

enum class Waiting { no, warp, block, cluster, grid, done };

// A fibre is begun by setcontext and continued by _longjmp, which costs no system call. (QEMU's coroutines do
// the same.) It is begun once: where a kernel has ended, it waits for that of the next block.
struct Fibre {
  std::unique_ptr<char[]> stack;
  ucontext_t context;
  jmp_buf place;  // where it continues
  bool begun = false;
  Index index, block;
  Waiting waiting = Waiting::no;
  std::uint32_t word = 0;  // the word that it passes to a shuffle
};

struct Machine {
  jmp_buf scheduler;
  std::vector<Fibre> fibres;  // of the blocks that run; behind them those that earlier grids needed
  std::size_t count = 0;      // of the blocks that run
  Fibre* current = nullptr;
  const std::function<void()>* kernel = nullptr;
  bool deadlock = false;
  // Dynamic shared memory of each block that runs, shared_stride bytes apart, kBehind bytes longer than the
  // kernel's; null where there is none.
  unsigned char* shared = nullptr;
  std::size_t shared_bytes = 0, shared_stride = 0;
  std::size_t cluster = 0;  // blocks in a cluster; 0: the blocks run one after another
};
inline Machine machine;

inline Fibre& lane_of_same_warp(int lane) {
  const std::size_t self = static_cast<std::size_t>(machine.current - machine.fibres.data());
  return machine.fibres[self / 32 * 32 + static_cast<std::size_t>(lane)];
}

}  // namespace exphil::grid

inline exphil::grid::Index threadIdx, blockIdx, blockDim, gridDim;

namespace exphil::grid {

__attribute__((noinline)) inline void yield(Waiting waiting) {
  machine.current->waiting = waiting;
  if (_setjmp(machine.current->place) == 0) _longjmp(machine.scheduler, 1);
}
inline void enter() {
  for (;;) {
    (*machine.kernel)();
    yield(Waiting::done);
  }
}

// Runs a fibre until it yields.
__attribute__((noinline)) inline void resume(Fibre& fibre) {
  machine.current = &fibre;
  threadIdx = fibre.index;
  blockIdx = fibre.block;
  if (_setjmp(machine.scheduler) != 0) return;
  if (fibre.begun) _longjmp(fibre.place, 1);
  constexpr std::size_t kStack = 128 * 1024;
  fibre.begun = true;
  fibre.stack.reset(new char[kStack]);
  getcontext(&fibre.context);
  fibre.context.uc_stack.ss_sp = fibre.stack.get();
  fibre.context.uc_stack.ss_size = kStack;
  fibre.context.uc_link = nullptr;
  makecontext(&fibre.context, enter, 0);
  setcontext(&fibre.context);
}

// Resumes every fibre of [first, last) in this state of waiting, if all unfinished ones are in it.
inline bool release(std::size_t first, std::size_t last, Waiting waiting) {
  std::size_t found = 0;
  for (std::size_t i = first; i < last; ++i) {
    if (machine.fibres[i].waiting == Waiting::done) continue;
    if (machine.fibres[i].waiting != waiting) return false;
    ++found;
  }
  if (found == 0) return false;
  for (std::size_t i = first; i < last; ++i) {
    if (machine.fibres[i].waiting == waiting) machine.fibres[i].waiting = Waiting::no;
  }
  return true;
}

// Unwritten shared memory reads as NaN; the bytes behind it must not change.
constexpr std::size_t kBehind = 4096;
inline void poison_shared(std::size_t blocks) {
  if (machine.shared == nullptr) return;
  for (std::size_t b = 0; b < blocks; ++b) {
    std::memset(machine.shared + b * machine.shared_stride, 0xff, machine.shared_bytes + kBehind);
  }
}
inline bool kept_to_shared(std::size_t blocks) {
  for (std::size_t b = 0; machine.shared != nullptr && b < blocks; ++b) {
    const unsigned char* const behind = machine.shared + b * machine.shared_stride + machine.shared_bytes;
    if (std::any_of(behind, behind + kBehind, [](unsigned char byte) { return byte != 0xff; })) return false;
  }
  return true;
}

// Runs the warp whose first fibre is `first` until all of its fibres wait for the block or are done.
inline void run_warp(std::size_t first) {
  const std::size_t last = std::min(first + 32, machine.count);
  do {
    for (std::size_t i = first; i < last; ++i) {
      Fibre& fibre = machine.fibres[i];
      if (fibre.waiting != Waiting::no) continue;
      resume(fibre);
    }
  } while (release(first, last, Waiting::warp));
}

inline std::size_t threads_of_block() {
  return std::size_t{blockDim.x} * blockDim.y * blockDim.z;
}

// Fibres for `blocks` blocks from `first` on.
inline void make_fibres(Index first, std::size_t blocks) {
  machine.count = blocks * threads_of_block();
  // A jmp_buf may not move.
  if (machine.fibres.size() < machine.count) machine.fibres = std::vector<Fibre>(machine.count);
  for (std::size_t i = 0; i < machine.count; ++i) {
    Fibre& fibre = machine.fibres[i];
    const auto thread = static_cast<unsigned>(i % threads_of_block()), row = thread / blockDim.x;
    fibre.index = {thread % blockDim.x, row % blockDim.y, row / blockDim.y};
    fibre.block = first;
    fibre.block.x += static_cast<unsigned>(i / threads_of_block());
    fibre.waiting = Waiting::no;
  }
}

// Resumes the blocks, then the clusters, then the grid whose fibres all wait for that. Returns whether any.
inline bool release_any(std::size_t blocks) {
  bool any = false;
  const auto release_each = [&](std::size_t together, Waiting waiting) {
    for (std::size_t b = 0; b < blocks; b += together) {
      any |= release(b * threads_of_block(), std::min(blocks, b + together) * threads_of_block(), waiting);
    }
  };
  release_each(1, Waiting::block);
  if (machine.cluster > 0) release_each(machine.cluster, Waiting::cluster);
  release_each(blocks, Waiting::grid);
  return any;
}

inline void run_blocks(Index first, std::size_t blocks) {
  poison_shared(blocks);
  make_fibres(first, blocks);
  // Between barriers of the block each warp runs alone, in ascending and then in descending order: a warp
  // that reads another warp's data without a barrier finds it missing or overwritten. So do the blocks that
  // run together.
  const std::size_t warps = (threads_of_block() + 31) / 32 * blocks;
  const std::size_t per_block = warps / blocks;
  bool forward = true;
  do {
    for (std::size_t i = 0; i < warps; ++i) {
      const std::size_t warp = forward ? i : warps - 1 - i;
      run_warp(warp / per_block * threads_of_block() + 32 * (warp % per_block));
    }
    forward = !forward;
  } while (release_any(blocks));
  for (std::size_t i = 0; i < machine.count; ++i) {
    machine.deadlock |= machine.fibres[i].waiting != Waiting::done;
  }
  if (machine.deadlock) machine.fibres.clear();  // some are inside a kernel
  if (machine.deadlock) throw std::runtime_error("the emulated grid is stuck");
  if (!kept_to_shared(blocks)) throw std::runtime_error("a block wrote behind its shared memory");
}

// Throws where fibres deadlock, or wait for a block that has not run.
inline void run(Index grid_size, Index block_size, const std::function<void()>& kernel) {
  gridDim = grid_size;
  blockDim = block_size;
  machine.kernel = &kernel;
  machine.deadlock = false;
  if (machine.cluster > 0) return run_blocks({0, 0, 0}, grid_size.x);
  for (unsigned y = 0; y < grid_size.y; ++y) {
    for (unsigned x = 0; x < grid_size.x; ++x) run_blocks({x, y, 0}, 1);
  }
}

inline void sync_block() {
  yield(Waiting::block);
}
inline void sync_cluster() {
  yield(Waiting::cluster);
}
inline void sync_grid() {
  yield(Waiting::grid);
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
  machine.current->word = word;
  sync_warp();
  const std::uint32_t other = lane_of_same_warp(lane).word;
  sync_warp();
  return other;
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
