// How an associative scan is split into blocks: the kernel variant, and the elements of time of a thread and
// of a block. Depends on operation, dtype, layout and length only, so that a sequence gets the same bits
// whatever else is in the batch. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/associative/problem.hpp"
#include "cuda/jit/kernel_cache.hpp"
#include "cuda/jit/launch.hpp"
#include "kernels/associative/arguments.cuh"

namespace exphil::cuda {

// Values that a benchmark may force; 0 leaves the choice to the plan.
struct AssociativeTuning {
  int items = 0, warps = 0;
};

struct AssociativePlan {
  KernelSpec spec;
  associative::Arguments arguments;  // without the addresses
  Dim3 grid, block;
  // Bytes of memory for the hand-over; 0 where one block scans an entire sequence.
  std::size_t exchange_bytes = 0;
  std::size_t scratch_bytes() const { return exchange_bytes; }
};

// Throws limit_exceeded for more blocks than a grid has. `problem` is not empty. With `gradient`, the plan of
// the scan of a linear recurrence's gradient; `problem` is then that scan, in its own direction.
AssociativePlan plan_associative(const core::AssociativeProblem& problem,
                                 const AssociativeTuning& tuning = {}, bool gradient = false);

}  // namespace exphil::cuda
