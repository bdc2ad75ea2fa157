// The dimensions of a Mamba policy and its weights, both read from a checkpoint's names and shapes
// (lib/ex_phil/native/mamba.ex lists them). Immutable after load_weights; safe to share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/safetensors.hpp"

namespace exphil::core {

// Beyond these a checkpoint is refused; d_state has the limit of every scan (kMaxState).
inline constexpr std::int64_t kMaxConvTaps = 16;
inline constexpr std::int64_t kMaxLayers = 1024;

struct PolicyConfig {
  std::int64_t d_input = 0, d_output = 0;
  std::int64_t d_model = 0, d_inner = 0, n_layer = 0;
  std::int64_t d_state = 0, d_conv = 0, dt_rank = 0;
  float norm_epsilon = 1e-5f;

  // One agent's recurrent state, in floats, for the whole policy: n_layer times ssm {d_inner, d_state} and
  // conv {d_inner, d_conv - 1} (the last inputs of the causal convolution, oldest first).
  std::int64_t ssm_floats() const { return n_layer * d_inner * d_state; }
  std::int64_t conv_floats() const { return n_layer * d_inner * (d_conv - 1); }
};

// f32, row-major, {out, in} for matrices as PyTorch stores them. Optional vectors are empty where the
// checkpoint has none.
struct PolicyLayerWeights {
  std::vector<float> norm;                     // {d_model}
  std::vector<float> in_proj, in_proj_bias;    // {2 d_inner, d_model}: x rows, then z rows
  std::vector<float> conv, conv_bias;          // {d_inner, d_conv}, oldest tap first
  std::vector<float> x_proj;                   // {dt_rank + 2 d_state, d_inner}: dt, B, C rows
  std::vector<float> dt_proj, dt_proj_bias;    // {d_inner, dt_rank}
  std::vector<float> a;                        // {d_inner, d_state}: -exp(A_log)
  std::vector<float> d;                        // {d_inner}
  std::vector<float> out_proj, out_proj_bias;  // {d_model, d_inner}
};

struct PolicyWeights {
  PolicyConfig config;
  // Of every tensor's name, dtype, shape and bytes, and of norm_epsilon; ties states to the policy.
  std::uint64_t fingerprint = 0;
  std::vector<float> input_proj, input_proj_bias;  // {d_model, d_input}
  std::vector<PolicyLayerWeights> layers;
  std::vector<float> norm_f;           // {d_model}
  std::vector<float> head, head_bias;  // {d_output, d_model}
};

struct PolicyLoadOptions {
  std::optional<float> norm_epsilon;  // else the file's metadata "norm_epsilon", else 1e-5
  bool check_finite = true;
};

// Names are those of state-spaces/mamba and of transformers' Mamba, with or without the prefix "backbone.".
// Infers every dimension from the shapes and cross-checks it. F32, F16 and BF16 tensors are accepted and
// widened to f32. Biases of in_proj and out_proj come together, in every layer or in none, and so does
// conv1d.bias; the other biases must be there: a checkpoint that lost one would play wrongly without a word.
// Throws invalid_checkpoint naming the tensor that is missing, spare, misshapen, of a wrong dtype or not
// finite, and limit_exceeded naming the one that is too large.
std::shared_ptr<const PolicyWeights> load_weights(const Safetensors& file, const PolicyLoadOptions& options);

}  // namespace exphil::core
