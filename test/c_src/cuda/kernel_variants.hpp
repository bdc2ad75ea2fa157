// Every kernel variant that this library may compile at run time, for the tests that compile them all without
// a device. Stateless.
#pragma once

#include <vector>

#include "cuda/jit/kernel_cache.hpp"

namespace exphil::cuda {

// The variants of every */variants.hpp, without duplicates.
std::vector<KernelSpec> all_kernel_variants();

}  // namespace exphil::cuda
