// What the rows of a gradient's vectors need before their first use, where their memory had other values.
// Used by host/policy/gradient_forward.cpp and gradient_vectors.hpp; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/network.hpp"
#include "host/simd/matmul.hpp"

namespace exphil::host {

// Zeros in all values of `count` rows of a block's vectors that no phase of the block writes: padding, and
// gaps between the parts of a vector. Kernels take whole panels. `at`: of each vector, null where it has no
// rows.
void clear_gaps(const core::Network& network, const core::Block& block, const std::vector<MatrixRows>& at,
                std::int64_t count);

}  // namespace exphil::host
