// Several two-layer heads as one: what a backend runs as two products instead of two for each head. Pure
// function; any thread.
#pragma once

#include <vector>

#include "core/policy/config.hpp"

namespace exphil::core {

// The hidden layers one after another, then a matrix with a block for each head. Its zeros cost less than a
// product of its own for each of them.
PolicyHead joined_heads(const std::vector<PolicyHead>& heads);

// Hidden values of all heads together.
std::int64_t hidden_width(const std::vector<PolicyHead>& heads);

}  // namespace exphil::core
