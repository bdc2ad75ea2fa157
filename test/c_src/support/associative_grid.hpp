// Runs the associative-scan kernels on the CPU: every CUDA thread is a fibre, and fibres change at barriers
// and shuffles only. Blocks run one after another in the order of their index, so a block that waited for a
// later one is found at once. For the tests of the kernels' logic where there is no GPU; one test at a time.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/half.hpp"

#define EXPHIL_EMULATED_GRID
#define EXPHIL_DEVICE inline
#define EXPHIL_UNROLL
#define EXPHIL_UNROLL_NOT
#define __shared__ static

namespace exphil::associative {

using std::memcpy;

namespace grid {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

enum class Waiting { no, warp, block, done };

struct Fibre {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  Index index;
  Waiting waiting = Waiting::no;
  std::uint32_t word = 0;  // what it offers to a shuffle
};

struct Machine {
  ucontext_t scheduler;
  std::vector<Fibre> fibres;
  Fibre* current = nullptr;
  const std::function<void()>* kernel = nullptr;
  bool deadlock = false;
};
inline Machine machine;

inline void yield(Waiting waiting) {
  Fibre* self = machine.current;
  self->waiting = waiting;
  swapcontext(&self->context, &machine.scheduler);
}

inline Fibre& lane_of_same_warp(int lane) {
  const std::size_t self = static_cast<std::size_t>(machine.current - machine.fibres.data());
  return machine.fibres[self / 32 * 32 + static_cast<std::size_t>(lane)];
}

}  // namespace grid

inline grid::Index threadIdx, blockIdx, blockDim, gridDim;

namespace grid {

inline void enter() {
  (*machine.kernel)();
  yield(Waiting::done);
}

// Lets go every fibre of [first, last) that waits like this, if all that are not done do.
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

inline void run_block() {
  constexpr std::size_t kStack = 128 * 1024;
  machine.fibres.resize(std::size_t{blockDim.x} * blockDim.y);
  for (std::size_t i = 0; i < machine.fibres.size(); ++i) {
    Fibre& fibre = machine.fibres[i];
    if (!fibre.stack) fibre.stack.reset(new char[kStack]);
    fibre.index = {static_cast<unsigned>(i % blockDim.x), static_cast<unsigned>(i / blockDim.x), 0};
    fibre.waiting = Waiting::no;
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.get();
    fibre.context.uc_stack.ss_size = kStack;
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, enter, 0);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (Fibre& fibre : machine.fibres) {
      if (fibre.waiting != Waiting::no) continue;
      machine.current = &fibre;
      threadIdx = fibre.index;
      swapcontext(&machine.scheduler, &fibre.context);
      moved = true;
    }
    for (std::size_t warp = 0; warp < machine.fibres.size(); warp += 32) {
      moved |= release(warp, warp + 32, Waiting::warp);
    }
    moved |= release(0, machine.fibres.size(), Waiting::block);
  }
  for (const Fibre& fibre : machine.fibres) machine.deadlock |= fibre.waiting != Waiting::done;
}

// Throws where fibres wait for each other for ever, or for a block that has not run.
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
    }
  }
}

}  // namespace grid

inline void sync_block() {
  grid::yield(grid::Waiting::block);
}
inline void sync_warp() {
  grid::yield(grid::Waiting::warp);
}

inline std::uint32_t from_lane(std::uint32_t word, int lane) {
  grid::machine.current->word = word;
  sync_warp();
  const std::uint32_t other = grid::lane_of_same_warp(lane).word;
  sync_warp();
  return other;
}
inline std::uint32_t lane_above(std::uint32_t word, int distance) {
  const int lane = static_cast<int>(threadIdx.x) - distance;
  return from_lane(word, lane < 0 ? static_cast<int>(threadIdx.x) : lane);
}

inline unsigned peek(const unsigned* word) {
  return *word;
}
inline void poke(unsigned* word, unsigned value) {
  *word = value;
}
inline void wait_more() {
  grid::machine.deadlock = true;
  grid::yield(grid::Waiting::done);
}
inline long long forget(long long value) {
  return value;
}
inline long long stepped(long long address, long long bytes) {
  return address + bytes;
}

inline float half_to_float(unsigned short half) {
  return core::f16_to_f32(half);
}
inline unsigned short float_to_half(float value) {
  return core::f32_to_f16(value);
}
inline unsigned float_bits(float value) {
  return core::f32_bits(value);
}
inline float bits_float(unsigned bits) {
  return core::f32_from_bits(bits);
}

}  // namespace exphil::associative

#include "kernels/associative/columns.cuh"
#include "kernels/associative/rows.cuh"
