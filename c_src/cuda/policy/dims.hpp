// The padded dimensions of a policy on the GPU and the shapes its kernels are compiled for: the host's twin
// of kernels/policy/dims.cuh and kernels/policy/team_layout.cuh, which must agree with it (a test compares
// them). Immutable values; safe anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/policy/config.hpp"

namespace exphil::cuda {

struct PolicyDims {
  explicit PolicyDims(const core::PolicyConfig& config);  // throws limit_exceeded

  core::PolicyConfig config;
  int model, inner, input, output, layers;  // padded to segments of 32, but output
  int lanes, per_lane, state;               // of one channel's states, padded
  int rank, projection;                     // x_proj's output: rank, then B and C
  int taps, history;

  std::int64_t layer_state_floats() const { return std::int64_t{inner} * (state + history); }
  std::int64_t state_floats() const { return layers * layer_state_floats(); }
  std::vector<std::string> defines() const;
};

constexpr int kSegment = 32;

// Columns of a weight matrix as policy/product.cuh reads it.
int product_columns(int outputs);
// Rows of a product_few tile for this inner dimension; 0 where it does not fit shared memory.
int few_rows(int k);

// A way to run policy_step.
struct TeamShape {
  int team = 1, threads = 256, agents = 1;
  bool cluster = false, staged = false;
  std::vector<std::string> defines(const PolicyDims& dims) const;
};

// Offsets (in floats) of what one block of a team owns.
struct TeamLayout {
  TeamLayout(const PolicyDims& dims, int team);

  int own_segments, own, rows, heads;
  // InputSection and HeadSection
  int input_bias, input_floats, head_bias, head_floats;
  // LayerSection
  int in_bias, conv, conv_bias, x_proj, dt_proj, dt_bias, a, d, out_proj, out_bias, layer_floats;
  int in_proj_floats;
  // Slice
  std::int64_t head_section, layers_section, staged_floats, in_proj_section, slice_floats;
};

std::int64_t shared_bytes(const PolicyDims& dims, const TeamShape& shape);
std::int64_t board_floats(const PolicyDims& dims, const TeamShape& shape);

}  // namespace exphil::cuda
