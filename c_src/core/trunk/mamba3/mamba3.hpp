// Mamba-3 as a trunk, SISO and MIMO, as state-spaces/mamba saves it (mamba_ssm/modules/mamba3.py), in a
// policy with input_proj and head.
//
//   a layer: norm; in_proj to z, x, B, C, dt, a, trap, angles; dt activated; the coefficients of the
//   trapezoidal rule; norms of B and C, their biases, their rotation by cumulative angles; the recurrence
//   over heads; a norm of each head, or none; gate by silu(z); out_proj; residual. MIMO: several ranks of x,
//   z and of what becomes out_proj's input state parts: angle {heads, angles}; ssm {d_inner, d_state}; k
//   {ranks heads, d_state}, the frame before's B; v {heads, headdim}, its x
#pragma once

#include "core/trunk/loading.hpp"

namespace exphil::core::mamba3 {

// initial.cpp. Own sizes: d_state (128), headdim (64), expand (2), ngroups (1), mimo_rank (none: SISO), the
// defaults of mamba_ssm's Mamba3.
std::vector<InitialTensor> initial_weights(const std::string& trunk, SizeReader sizes,
                                           const Initializer& draw);

Trunk trunk();

}  // namespace exphil::core::mamba3
