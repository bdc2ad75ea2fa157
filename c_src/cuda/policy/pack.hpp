// Lays a policy's weights out for its kernels, on the host, once, at load: padded with zeros, norm weights
// multiplied into the columns of the matrix that follows. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/config.hpp"
#include "cuda/policy/dims.hpp"

namespace exphil::cuda {

// For policy_step: TEAM slices one after another (kernels/policy/team_layout.cuh).
std::vector<float> pack_team(const core::PolicyWeights& weights, const PolicyDims& dims, int team);

// For the kernels over many rows. Offsets in floats into one buffer; matrices are float4 [k / 4][columns].
struct RowLayout {
  struct Layer {
    std::int64_t in_proj, in_bias, conv, conv_bias, x_proj, dt_proj, dt_bias, a, d, out_proj, out_bias;
  };
  std::int64_t input, input_bias, head, head_bias;
  std::vector<Layer> layers;
};
std::vector<float> pack_rows(const core::PolicyWeights& weights, const PolicyDims& dims, RowLayout* layout);

}  // namespace exphil::cuda
