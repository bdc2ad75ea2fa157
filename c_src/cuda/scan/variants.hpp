// The scan kernels that the compile test builds for every architecture: one of each kind that the launcher
// can choose. Stateless.
#pragma once

#include <vector>

#include "cuda/jit/kernel_cache.hpp"

namespace exphil::cuda {

std::vector<KernelSpec> scan_kernel_variants();

}  // namespace exphil::cuda
