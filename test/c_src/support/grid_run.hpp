// Runs the emulated grid of grid.hpp.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "support/grid.hpp"

namespace exphil::grid {

struct Running {
  std::vector<Fibre> fibres;
  std::vector<std::unique_ptr<char[]>> stacks;  // of the fibres
  std::vector<Barrier> barriers;
  const std::function<void()>* kernel = nullptr;
};
inline Running running;

inline void enter() {
  for (;;) {
    (*running.kernel)();
    yield(Waiting::done);
  }
}

// Enters the current fibre; on a stack of its own where it has not begun.
[[noreturn]] EXPHIL_SWITCH inline void enter_current() {
  Fibre& fibre = *machine.current;
  if (fibre.begun) __builtin_longjmp(fibre.place, 1);
  constexpr std::size_t kStack = 128 * 1024;
  fibre.begun = true;
  std::unique_ptr<char[]>& stack = running.stacks[static_cast<std::size_t>(&fibre - machine.fibres)];
  stack.reset(new char[kStack]);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = stack.get();
  context.uc_stack.ss_size = kStack;
  context.uc_link = nullptr;
  makecontext(&context, enter, 0);
  setcontext(&context);
  std::abort();
}

// Runs a fibre until it yields, and those behind it in its warp.
EXPHIL_SWITCH inline void resume(Fibre& fibre) {
  make_current(fibre);
  if (__builtin_setjmp(machine.scheduler) == 0) enter_current();
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
  machine.end_of_warp = machine.fibres + last;
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
  if (running.fibres.size() < machine.count) {  // none is moved: others have its address
    running.fibres = std::vector<Fibre>(machine.count);
    running.stacks = std::vector<std::unique_ptr<char[]>>(machine.count);
    machine.fibres = running.fibres.data();
  }
  for (std::size_t i = 0; i < machine.count; ++i) {
    Fibre& fibre = machine.fibres[i];
    const auto thread = static_cast<unsigned>(i % threads_of_block()), row = thread / blockDim.x;
    fibre.index = {thread % blockDim.x, row % blockDim.y, row / blockDim.y};
    fibre.block = first;
    fibre.block.x += static_cast<unsigned>(i / threads_of_block());
    fibre.waiting = Waiting::no, fibre.turn = 0;
  }
}

// Resumes the threads of a block that wait at a barrier to which all of its threads have come.
inline bool release_some(std::size_t block) {
  Fibre* const first = machine.fibres + block * threads_of_block();
  std::size_t waiting[kBarriers] = {};
  bool any = false;
  for (std::size_t i = 0; i < threads_of_block(); ++i) {
    if (first[i].waiting == Waiting::some) ++waiting[first[i].barrier];
  }
  for (std::size_t number = 0; number < kBarriers; ++number) {
    Barrier& barrier = machine.barriers[block * kBarriers + number];
    if (waiting[number] == 0 || waiting[number] + barrier.arrived != barrier.threads) continue;
    barrier.arrived = 0, any = true;
    for (std::size_t i = 0; i < threads_of_block(); ++i) {
      if (first[i].waiting == Waiting::some && first[i].barrier == number) first[i].waiting = Waiting::no;
    }
  }
  return any;
}

// Resumes the blocks, or some of their threads, then the clusters, then the grid whose fibres all wait for
// that, and those whose bytes are there. Returns whether any.
inline bool release_any(std::size_t blocks) {
  bool any = false;
  const auto release_each = [&](std::size_t together, Waiting waiting) {
    for (std::size_t b = 0; b < blocks; b += together) {
      any |= release(b * threads_of_block(), std::min(blocks, b + together) * threads_of_block(), waiting);
    }
  };
  release_each(1, Waiting::block);
  for (std::size_t block = 0; block < blocks; ++block) any |= release_some(block);
  if (machine.cluster > 0) release_each(machine.cluster, Waiting::cluster);
  release_each(blocks, Waiting::grid);
  for (std::size_t i = 0; i < machine.count; ++i) {
    Fibre& fibre = machine.fibres[i];
    if (fibre.waiting == Waiting::turn) fibre.waiting = Waiting::no, any = true;
    if (fibre.waiting != Waiting::bytes || !fibre.arrivals->have(fibre.parity)) continue;
    fibre.waiting = Waiting::no, any = true;
  }
  return any;
}

inline void run_blocks(Index first, std::size_t blocks) {
  machine.pauses = std::getenv("FAKE_CUDA_PAUSES") != nullptr;
  running.barriers.assign(blocks * kBarriers, {});
  machine.barriers = running.barriers.data();
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
  if (machine.deadlock) running.fibres.clear();  // some are inside a kernel
  if (machine.deadlock) throw std::runtime_error("the emulated grid is stuck");
  if (!kept_to_shared(blocks)) throw std::runtime_error("a block wrote behind its shared memory");
}

// A kernel is the caller's: nothing keeps its address after run().
struct Forgotten {
  ~Forgotten() { running.kernel = nullptr; }
};

// Throws where fibres deadlock, or wait for a block that has not run.
inline void run(Index grid_size, Index block_size, const std::function<void()>& kernel) {
  gridDim = grid_size;
  blockDim = block_size;
  running.kernel = &kernel;
  const Forgotten forgotten;
  machine.deadlock = false;
  if (machine.cluster > 0) return run_blocks({0, 0, 0}, grid_size.x);
  for (unsigned z = 0; z < grid_size.z; ++z) {
    for (unsigned y = 0; y < grid_size.y; ++y) {
      for (unsigned x = 0; x < grid_size.x; ++x) run_blocks({x, y, z}, 1);
    }
  }
}

}  // namespace exphil::grid
