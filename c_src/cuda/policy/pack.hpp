// Converts a policy's weights (cuda/policy/fold.hpp) to the layout of its kernels, on the host, at load, and
// its states: padded with zeros. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "core/policy/config.hpp"
#include "cuda/policy/dims.hpp"

namespace exphil::cuda {

// For policy_step: the shares of `team` blocks, one after another (policy::TeamLayout).
std::vector<std::byte> pack_team(const core::PolicyWeights& weights, const PolicyDims& dims, int team);

// For the kernels over many rows: the offset of each part in one buffer. Matrices are float4 [k /
// 4][policy::product_columns(outputs)]; parts are aligned to 256 bytes.
struct RowLayout {
  using Part = policy::Part<float>;
  struct Layer {
    Part in_proj, in_bias, conv, conv_bias, x_proj, x_bias, dt_proj, dt_bias, a, d, out_proj, out_bias;
  };
  Part input, input_bias, head, head_bias, hidden, hidden_bias;
  std::vector<Layer> layers;
};
struct PackedRows {
  RowLayout layout;
  std::vector<std::byte> bytes;
};
PackedRows pack_rows(const core::PolicyWeights& weights, const PolicyDims& dims);

// A state between the public layout (core/policy/policy.hpp) and the kernels' (policy::Dims): channels and
// states are padded with zeros, and conv has the channel last.
void pack_state(const PolicyDims& dims, const float* ssm, const float* conv, float* packed);
void unpack_state(const PolicyDims& dims, const float* packed, float* ssm, float* conv);

}  // namespace exphil::cuda
