// Fresh weights of a Mamba policy. Used by core/trunk/initial.cpp.
#pragma once

#include <vector>

#include "core/trunk/initial.hpp"

namespace exphil::core::mamba1 {

// Sizes: d_input, d_output, d_model, layers; d_state (16), d_conv (4), expand (2), dt_rank (d_model / 16,
// rounded up): the defaults of state-spaces/mamba, mamba_ssm/modules/mamba_simple.py.
std::vector<InitialTensor> initial_weights(SizeReader sizes, const Initializer& draw);

}  // namespace exphil::core::mamba1
