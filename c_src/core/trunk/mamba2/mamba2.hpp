// Mamba-2 (Dao and Gu 2024) as a trunk, as state-spaces/mamba and transformers save it, in a policy with
// input_proj and head.
//
//   a layer: norm; in_proj to z, x B C, dt (and z0, x0 of a part that is gated alone); conv of x B C, silu;
//   dt activated; the recurrence over heads, one decay for each; gate by silu(z), with a norm before it,
//   after it or none; out_proj; residual state parts: ssm {d_ssm, d_state}, a row for each channel of the
//   heads; conv {d_ssm + 2 ngroups d_state, d_conv - 1}
#pragma once

#include "core/trunk/loading.hpp"

namespace exphil::core::mamba2 {

// initial.cpp. Own sizes: d_state (128), d_conv (4), headdim (64), expand (2), ngroups (1), the defaults of
// mamba_ssm's Mamba2.
std::vector<InitialTensor> initial_weights(const std::string& trunk, SizeReader sizes,
                                           const Initializer& draw);

Trunk trunk();

}  // namespace exphil::core::mamba2
