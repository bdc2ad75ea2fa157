// The dimensions and weights of a Mamba policy, both read from a checkpoint's names and shapes (listed in
// lib/ex_phil/native/mamba.ex). Immutable after load_weights; safe to share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.hpp"
#include "core/policy/spec.hpp"

namespace exphil::core {

// A checkpoint beyond these limits is refused; the limit of d_state is kMaxState, as for every scan.
inline constexpr std::int64_t kMaxConvTaps = 16;
inline constexpr std::int64_t kMaxLayers = 1024;

struct PolicyConfig {
  std::int64_t d_input = 0, d_output = 0;
  std::int64_t d_model = 0, d_inner = 0, n_layer = 0;
  std::int64_t d_state = 0, d_conv = 0, dt_rank = 0;
  float norm_epsilon = 1e-5f;
  PolicySpec spec;
  std::vector<OutputGroup> groups;  // of two-layer heads; empty where the outputs have no names

  // One agent's recurrent state, in floats, for all layers: n_layer times ssm {d_inner, d_state} and
  // conv {d_inner, d_conv - 1} (the last inputs of the causal convolution, oldest first).
  std::int64_t ssm_floats() const { return n_layer * d_inner * d_state; }
  std::int64_t conv_floats() const { return n_layer * d_inner * (d_conv - 1); }
};

// f32, row-major, {out, in} for matrices as PyTorch stores them. Optional vectors are empty where the
// checkpoint has none.
struct PolicyLayerWeights {
  std::vector<float> norm, norm_bias;          // {d_model}; a bias for LayerNorm only
  std::vector<float> in_proj, in_proj_bias;    // {2 d_inner, d_model}: x rows, then z rows
  std::vector<float> conv, conv_bias;          // {d_inner, d_conv}, oldest tap first
  std::vector<float> x_proj, x_proj_bias;      // {dt_rank + 2 d_state, d_inner}: dt, B, C rows
  std::vector<float> dt_proj, dt_proj_bias;    // {d_inner, dt_rank}
  std::vector<float> a;                        // {d_inner, d_state}: -exp(A_log), or -(1..d_state)
  std::vector<float> d;                        // {d_inner}; empty: no skip
  std::vector<float> out_proj, out_proj_bias;  // {d_model, d_inner}
};

// One of several heads that read the same final hidden state: out relu(hidden x + hidden_bias) + out_bias.
struct PolicyHead {
  std::vector<float> hidden, hidden_bias;  // {width, d_model}
  std::vector<float> out, out_bias;        // {count of its OutputGroup, width}
  std::int64_t width() const { return static_cast<std::int64_t>(hidden_bias.size()); }
};

// The outputs come from `heads` (one for each group of the config, in order) where there are any, else from
// `head`; without either they are the final hidden state (d_output == d_model).
struct PolicyWeights {
  PolicyConfig config;
  // Hash of every tensor's name, dtype, shape and bytes, of norm_epsilon, and of the options that affect a
  // state. Ties states to the policy.
  std::uint64_t fingerprint = 0;
  std::vector<float> input_proj, input_proj_bias;  // {d_model, d_input}
  std::vector<PolicyLayerWeights> layers;
  std::vector<float> norm_f, norm_f_bias;  // {d_model}
  std::vector<float> head, head_bias;      // {d_output, d_model}
  std::vector<PolicyHead> heads;
};

struct PolicyLoadOptions {
  // By default the metadata's "norm_epsilon", else 1e-5. Must be positive and finite as f32.
  std::optional<double> norm_epsilon;
  bool check_finite = true;
  // Options that a file may leave open. Where the file states one, a different option is an error.
  std::optional<Dialect> dialect;
  std::optional<std::int64_t> window, chunk_size;
  std::optional<InputDt> input_dt;  // edifice_mamba only; the mean by default
};

// Reads a file of either naming and detects which by the names:
//
// - state-spaces/mamba and transformers' Mamba, with or without the prefix "backbone.". Either every layer
// or none has biases of in_proj and out_proj; the same holds for conv1d.bias. The other biases are
// required: a checkpoint that lost one would load without an error, and the policy would play
// wrongly.
//
// - Edifice's :mamba and :mamba_ssd, alone or with ExPhil's six heads. The dialect comes from the file's
// build options, from safetensors metadata that mix exphil.convert wrote, or from the option; the names alone
// do not determine it.
//
// Infers every dimension from the shapes, cross-checks it, and compares it with the build options. F32, F16
// and BF16 tensors are accepted and widened to f32. Throws invalid_checkpoint naming the tensor that is
// missing, unexpected, misshapen, of a wrong dtype or not finite, or the build option that disagrees;
// limit_exceeded naming the tensor that is too large; invalid_argument where an option contradicts the file.
std::shared_ptr<const PolicyWeights> load_weights(const Checkpoint& file, const PolicyLoadOptions& options);

}  // namespace exphil::core
