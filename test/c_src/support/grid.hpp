// Runs kernels on the CPU: every CUDA thread of a block is a fibre, and fibres switch only at barriers and
// shuffles. Blocks run one after another in the order of their index, so a block that waits for a later one
// is detected. Include it before the kernel's source, which then needs no CUDA compiler. For tests of the
// kernels' logic without a GPU; one grid at a time. Copies complete when they are started; named barriers and
// clusters are not emulated.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
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

namespace exphil::grid {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

enum class Waiting { no, warp, block, done };

// A fibre is begun by setcontext and continued by _longjmp, which costs no system call. (QEMU's coroutines do
// the same.)
struct Fibre {
  ucontext_t context;
  jmp_buf place;  // where it continues
  bool begun = false;
  Index index;
  Waiting waiting = Waiting::no;
  std::uint32_t word = 0;  // the word that it passes to a shuffle
};

struct Machine {
  jmp_buf scheduler;
  std::vector<Fibre> fibres;
  std::vector<std::unique_ptr<char[]>> stacks;  // of the fibres; kept for the next grid
  Fibre* current = nullptr;
  const std::function<void()>* kernel = nullptr;
  bool deadlock = false;
  unsigned char* shared = nullptr;  // dynamic shared memory, kBehind bytes longer; null where there is none
  std::size_t shared_bytes = 0;
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
// Runs a fibre until it yields.
__attribute__((noinline)) inline void resume(Fibre& fibre) {
  machine.current = &fibre;
  threadIdx = fibre.index;
  if (_setjmp(machine.scheduler) != 0) return;
  if (fibre.begun) _longjmp(fibre.place, 1);
  fibre.begun = true;
  setcontext(&fibre.context);
}

inline void enter() {
  (*machine.kernel)();
  yield(Waiting::done);
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
inline void poison_shared() {
  if (machine.shared != nullptr) std::memset(machine.shared, 0xff, machine.shared_bytes + kBehind);
}
inline bool kept_to_shared() {
  for (std::size_t i = 0; machine.shared != nullptr && i < kBehind; ++i) {
    if (machine.shared[machine.shared_bytes + i] != 0xff) return false;
  }
  return true;
}

// Runs the warp whose first fibre is `first` until all of its fibres wait for the block or are done.
inline void run_warp(std::size_t first) {
  const std::size_t last = std::min(first + 32, machine.fibres.size());
  do {
    for (std::size_t i = first; i < last; ++i) {
      Fibre& fibre = machine.fibres[i];
      if (fibre.waiting != Waiting::no) continue;
      resume(fibre);
    }
  } while (release(first, last, Waiting::warp));
}

inline void run_block() {
  constexpr std::size_t kStack = 128 * 1024;
  machine.fibres.resize(std::size_t{blockDim.x} * blockDim.y * blockDim.z);
  while (machine.stacks.size() < machine.fibres.size()) machine.stacks.emplace_back(new char[kStack]);
  poison_shared();
  for (std::size_t i = 0; i < machine.fibres.size(); ++i) {
    Fibre& fibre = machine.fibres[i];
    const unsigned thread = static_cast<unsigned>(i), row = thread / blockDim.x;
    fibre.index = {thread % blockDim.x, row % blockDim.y, row / blockDim.y};
    fibre.waiting = Waiting::no;
    fibre.begun = false;
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = machine.stacks[i].get();
    fibre.context.uc_stack.ss_size = kStack;
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, enter, 0);
  }
  // Between barriers of the block each warp runs alone, in ascending and then in descending order: a warp
  // that reads another warp's data without a barrier finds it missing or overwritten.
  const std::size_t warps = (machine.fibres.size() + 31) / 32;
  bool forward = true;
  do {
    for (std::size_t i = 0; i < warps; ++i) run_warp(32 * (forward ? i : warps - 1 - i));
    forward = !forward;
  } while (release(0, machine.fibres.size(), Waiting::block));
  for (const Fibre& fibre : machine.fibres) machine.deadlock |= fibre.waiting != Waiting::done;
}

// Throws where fibres deadlock, or wait for a block that has not run.
inline void run(Index grid_size, Index block_size, const std::function<void()>& kernel) {
  gridDim = grid_size;
  blockDim = block_size;
  machine.kernel = &kernel;
  machine.deadlock = false;
  machine.fibres.clear();
  for (unsigned y = 0; y < grid_size.y; ++y) {
    for (unsigned x = 0; x < grid_size.x; ++x) {
      blockIdx = {x, y, 0};
      run_block();
      if (machine.deadlock) throw std::runtime_error("the emulated grid is stuck");
      if (!kept_to_shared()) throw std::runtime_error("a block wrote behind its shared memory");
    }
  }
}

inline void sync_block() {
  yield(Waiting::block);
}
// How many threads of the block pass true; every thread calls it.
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
template <class T>
T shuffle(T value, int lane) {
  static_assert(sizeof(T) == 4);
  std::uint32_t word;
  std::memcpy(&word, &value, 4);
  word = from_lane(word, lane);
  std::memcpy(&value, &word, 4);
  return value;
}

}  // namespace exphil::grid
