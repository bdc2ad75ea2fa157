// Lowers the phases of one block. Used by cuda/policy/lower.cpp while it lowers a network.
#pragma once

#include <array>

#include "cuda/policy/lower.hpp"
#include "cuda/policy/lower_vectors.hpp"

namespace exphil::cuda {

// Of each kind of lowered phase, how many a network has so far.
using PhaseCounts = std::array<int, policy::kKinds>;

// The phases of the second and later layers are those of the first one, and only their weights and states are
// new. `to` receives what is a phase's own, `counts` how many there are then.
LoweredBlock lower_block(const core::PolicyConfig& config, const core::Block& block, LoweredVectors& vectors,
                         policy::Network* to, PhaseCounts& counts);

}  // namespace exphil::cuda
