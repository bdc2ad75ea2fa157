// From a checkpoint to a policy, whatever its trunk and naming. Called by nif/ and the tests; pure functions,
// any thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/checkpoint/checkpoint.hpp"
#include "core/policy/config.hpp"

namespace exphil::core {

inline constexpr std::int64_t kMaxLayers = 1024;

// An option that only some trunks have, by its name in Elixir: a number, or an atom's name.
using TrunkOption = std::variant<std::int64_t, std::string, double>;

struct PolicyLoadOptions {
  // By default the metadata's "norm_epsilon", else 1e-5. Must be positive and finite as f32.
  std::optional<double> norm_epsilon;
  bool check_finite = true;
  std::optional<std::int64_t> window;    // frames of the windows it was trained on
  Precision precision = Precision::f32;  // the weights are rounded to it (core/policy/rounding.hpp)
  Precision states = Precision::f32;     // how matrix states are kept (core::with_states)
  // Options that a file may leave open, such as {"dialect", "edifice_mamba"}. Where the file states one, a
  // different option is an error.
  std::vector<std::pair<std::string, TrunkOption>> trunk;
};

// Reads a file of any trunk and naming that is known, and detects which by the names of its tensors and by
// its build options:
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
// - Mamba-2 and Mamba-3, with state-spaces' names; core/trunk/stated.hpp says where what shapes cannot say
// comes from.
//
// - Edifice's :gru, :lstm, :min_gru, :min_lstm and :gated_deltanet, alone or with ExPhil's six heads.
//
// A safetensors file's metadata may name the outputs of its head: see output_groups.hpp.
//
// Infers every dimension from the shapes, cross-checks it, and compares it with the build options. F32, F16
// and BF16 tensors are accepted and widened to f32. Throws invalid_checkpoint naming the tensor that is
// missing, unexpected, misshapen, of a wrong dtype or not finite, or the build option that disagrees;
// limit_exceeded naming the tensor that is too large, or the matrix that the precision cannot hold;
// invalid_argument where an option contradicts the file, or is not one of the trunk's.
std::shared_ptr<const PolicyWeights> load_weights(const Checkpoint& file, const PolicyLoadOptions& options);

// The same from a caller's tensors, and what a safetensors file would have as metadata. Errors have the
// argument "weights", and those of the outputs' names ":heads", which is where a caller gives them.
std::shared_ptr<const PolicyWeights> load_weights(const TensorMap& tensors,
                                                  std::map<std::string, std::string> metadata,
                                                  const PolicyLoadOptions& options);

// Other numbers for the same policy: a tensor for each of its parameters, by name. The fingerprint is the one
// that a file of these tensors would have. Errors are those of load_weights, with the argument "weights".
std::shared_ptr<const PolicyWeights> replace_weights(const PolicyWeights& policy, const TensorMap& tensors);
// The same from a value for each of its weights, as training leaves them: the parameters are those of f32
// tensors.
std::shared_ptr<const PolicyWeights> replace_weights(const PolicyWeights& policy, PolicyValues<float> values);

}  // namespace exphil::core
