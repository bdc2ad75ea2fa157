// Mamba (Gu and Dao 2023) as a trunk: its sizes and weights by their names in the paper, as the loaders of
// its namings read them (state_spaces.cpp, edifice.cpp), and the network that they make.
//
//   a layer: norm; in_proj to x, z; conv of x, silu; x_proj to dt's low rank, B, C; dt_proj; the selective
//   scan, gated by silu(z); out_proj; residual
//   state parts: ssm {d_inner, d_state}, conv {d_inner, d_conv - 1}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/policy/config.hpp"
#include "core/trunk/mamba1/spec.hpp"

namespace exphil::core::mamba1 {

// A checkpoint beyond these limits is refused; the limit of d_state is kMaxState, as for every scan.
inline constexpr std::int64_t kMaxConvTaps = 16;

struct Config {
  std::int64_t d_input = 0, d_output = 0;
  std::int64_t d_model = 0, d_inner = 0, n_layer = 0;
  std::int64_t d_state = 0, d_conv = 0, dt_rank = 0;
  float norm_epsilon = 1e-5f;
  Spec spec;
  std::vector<OutputGroup> groups;
};

using Values = std::vector<float>;

// Row-major, {out, in} for matrices as PyTorch stores them. Optional vectors are empty where the checkpoint
// has none.
struct Layer {
  Values norm, norm_bias;          // {d_model}; a bias for LayerNorm only
  Values in_proj, in_proj_bias;    // {2 d_inner, d_model}: x rows, then z rows
  Values conv, conv_bias;          // {d_inner, d_conv}, oldest tap first
  Values x_proj, x_proj_bias;      // {dt_rank + 2 d_state, d_inner}: dt, B, C rows
  Values dt_proj, dt_proj_bias;    // {d_inner, dt_rank}
  Values a_log;                    // {d_inner, d_state}; empty: A = -(1..d_state) in each channel
  Values d;                        // {d_inner}; empty: no skip
  Values out_proj, out_proj_bias;  // {d_model, d_inner}
};

// One of several heads that read the same final hidden state: out relu(hidden x + hidden_bias) + out_bias.
struct Head {
  Values hidden, hidden_bias;  // {width, d_model}
  Values out, out_bias;        // {count of its OutputGroup, width}
  std::int64_t width() const { return static_cast<std::int64_t>(hidden_bias.size()); }
};

// A tensor of the checkpoint: which of vectors_of, and its first value there.
struct Tensor {
  std::string name;
  Shape shape;
  const char* axes = "";
  std::size_t vector = 0, first = 0;
  bool transposed = false;  // {in, out} in the file, {out, in} here
};

// Outputs come from `heads` (one for each group of the config, in order), else from `head`, else they are the
// hidden state itself (d_output == d_model).
struct Weights {
  Config config;
  Values input_proj, input_proj_bias;  // {d_model, d_input}
  std::vector<Layer> layers;
  Values norm_f, norm_f_bias;  // {d_model}
  Values head, head_bias;      // {d_output, d_model}
  std::vector<Head> heads;
  std::vector<Tensor> tensors;
  std::uint64_t fingerprint = 0;
};

// Every vector of the weights, in one fixed order.
std::vector<Values*> vectors_of(Weights& weights);

// Zeros for every tensor that state-spaces' naming requires.
Weights zero_weights(const Config& config);

// The policy of these weights. Several heads become one product with all hidden layers and one with a block
// for each head, whose zeros cost less than products of their own.
PolicyWeights describe(Weights weights);

}  // namespace exphil::core::mamba1
