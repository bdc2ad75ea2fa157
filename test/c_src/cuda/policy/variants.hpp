// The policy kernels that the tests compile for every architecture: for the recorded policy's dimensions and
// for unusual ones. At run time only the kernels of the loaded policies are compiled.
#pragma once

#include <vector>

#include "cuda/jit/kernel_cache.hpp"

namespace exphil::cuda {

std::vector<KernelSpec> policy_kernel_variants();

}  // namespace exphil::cuda
