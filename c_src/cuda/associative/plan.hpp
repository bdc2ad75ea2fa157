// How an associative scan is cut into blocks: which kernel variant, how many elements of time a thread and a
// block take. Decided by operation, dtype, layout and length alone, so that a sequence gets the same bits
// whatever is around it. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/associative/problem.hpp"
#include "cuda/jit/kernel_cache.hpp"
#include "cuda/jit/launch.hpp"
#include "kernels/associative/arguments.cuh"

namespace exphil::cuda {

// What a benchmark may force; 0 leaves the choice to the plan.
struct AssociativeTuning {
  int items = 0, warps = 0;
};

struct AssociativePlan {
  KernelSpec spec;
  associative::Arguments arguments;  // without the addresses
  Dim3 grid, block;
  // The hand-over's memory; 0 where one block takes a whole sequence.
  std::size_t exchange_bytes = 0;
  std::size_t scratch_bytes() const { return exchange_bytes; }
};

// Throws limit_exceeded for more blocks than a grid has. `problem` is not empty.
AssociativePlan plan_associative(const core::AssociativeProblem& problem,
                                 const AssociativeTuning& tuning = {});

}  // namespace exphil::cuda
