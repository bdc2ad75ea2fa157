// The kernels of resident policies that the tests compile for every architecture: for the recorded policy's
// dimensions and for awkward ones. At run time a policy compiles its own few.
#pragma once

#include <vector>

#include "cuda/jit/kernel_cache.hpp"

namespace exphil::cuda {

std::vector<KernelSpec> policy_kernel_variants();

}  // namespace exphil::cuda
