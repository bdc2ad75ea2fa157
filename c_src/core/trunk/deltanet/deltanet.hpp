// Edifice's gated DeltaNet as a trunk (Yang et al. 2024): linear attention whose heads have a matrix as
// state, which each frame decays and corrects by the delta rule.
//
//   a layer: norm; conv, silu; one product to q, k, v, beta, alpha and gate; k of each head to length 1;
//   sigmoid of beta and alpha, and the mean of alpha over a head's channels; the recurrence; gate by silu;
//   out_proj; residual state parts: conv {d_model, taps - 1}, S {d_model, d_model / heads}: a row for each
//   channel of the values
#pragma once

#include "core/trunk/loading.hpp"

namespace exphil::core::deltanet {

Trunk trunk();

}  // namespace exphil::core::deltanet
