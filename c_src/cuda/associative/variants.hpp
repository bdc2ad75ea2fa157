// The compiled variants of kernels/associative/scan.cu. Pure functions; any thread.
#pragma once

#include <vector>

#include "core/associative/problem.hpp"
#include "cuda/jit/kernel_cache.hpp"

namespace exphil::cuda {

struct AssociativeVariant {
  core::AssociativeOp op;
  core::Dtype dtype;
  bool compensated;
  int items;              // elements of a sequence that one thread holds
  int lanes;              // columns of a block; 0: sequences are contiguous
  bool walk;              // a block scans its columns from end to end
  bool initial = false;   // the recurrence has an initial state
  bool gradient = false;  // the scan of a recurrence's gradient
};

KernelSpec associative_kernel_spec(const AssociativeVariant& variant);

// Variants for the all-architectures compile test: every operation with every dtype in one of the layouts,
// and both layouts and lengths where the code differs.
std::vector<KernelSpec> associative_kernel_variants();

}  // namespace exphil::cuda
