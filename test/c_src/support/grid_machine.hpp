// The state of the emulated grid of grid.hpp: its fibres, barriers and shared memory.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace exphil::grid {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

enum class Waiting { no, warp, barrier, block, cluster, grid, done };

// A fibre is begun by setcontext and continued by _longjmp, which costs no system call. (QEMU's coroutines do
// the same.)
struct Fibre {
  ucontext_t context;
  jmp_buf place;  // where it continues
  bool begun = false;
  Index index, block;
  Waiting waiting = Waiting::no;
  std::uint32_t word = 0;  // the word that it passes to a shuffle
  int barrier = 0;         // the number of the one where it waits
};

// One of a block's numbered barriers: opens when `expected` threads have come.
struct Barrier {
  std::size_t arrived = 0, expected = 0;
  int place = 0;  // the line where threads wait
};
constexpr int kBarriers = 16;

struct Machine {
  jmp_buf scheduler;
  std::vector<Fibre> fibres;
  std::vector<std::unique_ptr<char[]>> stacks;  // of the fibres; kept for the next grid
  Fibre* current = nullptr;
  const std::function<void()>* kernel = nullptr;
  bool deadlock = false;
  std::vector<Barrier> barriers;  // kBarriers of each block that runs
  bool misused = false;           // any of them
  // Dynamic shared memory of each block that runs, shared_stride bytes apart, kBehind bytes longer than the
  // kernel's; null where there is none.
  unsigned char* shared = nullptr;
  std::size_t shared_bytes = 0, shared_stride = 0;
  std::size_t cluster = 0;  // blocks in a cluster; 0: the blocks run one after another
};
inline Machine machine;

}  // namespace exphil::grid
