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

// For the kernels over many rows: the offset of each part in one buffer. Matrices are groups [k /
// 4][policy::product_columns(outputs)]; parts are aligned to 256 bytes.
struct RowLayout {
  using Part = policy::Part<float>;
  // scale and sums: as policy::RowVectors has them, for all columns.
  struct Matrix {
    policy::MatrixPart weights;
    Part bias, scale, sums;
  };
  struct Layer {
    Matrix in_proj, x_proj, out_proj;
    policy::MatrixPart dt_proj;
    Part conv, conv_bias, dt_bias, a, d;  // dt_bias: then the scales of dt_proj, where it has them
  };
  Matrix input, head, hidden;
  std::vector<Layer> layers;
};
struct PackedRows {
  RowLayout layout;
  std::vector<std::byte> bytes;
};
PackedRows pack_rows(const core::PolicyWeights& weights, const PolicyDims& dims);

// A state between the public layout (core/policy/policy.hpp) and the kernels' (policy::Dims): channels and
// states are padded with zeros, and conv has the channel last.
void pack_state(const PolicyDims& dims, const float* values, float* packed);
void unpack_state(const PolicyDims& dims, const float* packed, float* values);

}  // namespace exphil::cuda
