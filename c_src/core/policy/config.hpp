// The dimensions and weights of a Mamba policy, both read from a checkpoint's names and shapes (listed in
// lib/ex_phil/native/mamba.ex). Immutable after load_weights; safe to share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.hpp"
#include "core/policy/parameters.hpp"
#include "core/policy/precision.hpp"
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
  Precision precision = Precision::f32;  // of the matrices
  std::vector<OutputGroup> groups;       // of two-layer heads; empty where the outputs have no names

  // One agent's recurrent state, in floats, for all layers: n_layer times ssm {d_inner, d_state} and
  // conv {d_inner, d_conv - 1} (the last inputs of the causal convolution, oldest first).
  std::int64_t ssm_floats() const { return n_layer * d_inner * d_state; }
  std::int64_t conv_floats() const { return n_layer * d_inner * (d_conv - 1); }
};

using PolicyLayerWeights = PolicyLayerValues<float>;
using PolicyHead = PolicyHeadValues<float>;

struct PolicyWeights : PolicyValues<float> {
  PolicyConfig config;
  // Hash of every tensor's name, dtype, shape and bytes, of norm_epsilon, and of the options that affect a
  // state. Ties states to the policy.
  std::uint64_t fingerprint = 0;
  // The checkpoint's tensors, in the order in which they were read. `a` comes from a_log and is none.
  std::vector<PolicyParameter> parameters;
};

struct PolicyLoadOptions {
  // By default the metadata's "norm_epsilon", else 1e-5. Must be positive and finite as f32.
  std::optional<double> norm_epsilon;
  bool check_finite = true;
  // Options that a file may leave open. Where the file states one, a different option is an error.
  std::optional<Dialect> dialect;
  std::optional<std::int64_t> window, chunk_size;
  std::optional<InputDt> input_dt;       // edifice_mamba only; the mean by default
  Precision precision = Precision::f32;  // the weights are rounded to it (core/policy/rounding.hpp)
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
// do not determine it. Where they show an architecture that is not read, the error says which.
//
// Infers every dimension from the shapes, cross-checks it, and compares it with the build options. F32, F16
// and BF16 tensors are accepted and widened to f32. Throws invalid_checkpoint naming the tensor that is
// missing, unexpected, misshapen, of a wrong dtype or not finite, or the build option that disagrees;
// limit_exceeded naming the tensor that is too large, or the matrix that the precision cannot hold;
// invalid_argument where an option contradicts the file.
std::shared_ptr<const PolicyWeights> load_weights(const Checkpoint& file, const PolicyLoadOptions& options);

// Other numbers for the same policy: a tensor for each of its parameters, by name. The fingerprint is the one
// that a file of these tensors would have. Errors are those of load_weights, with the argument "weights".
std::shared_ptr<const PolicyWeights> replace_weights(const PolicyWeights& policy, const TensorMap& tensors);

}  // namespace exphil::core
