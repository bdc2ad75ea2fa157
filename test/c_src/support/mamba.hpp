// Mamba policies by their names: weights to change one by one, sizes, and the named parts of a state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/policy/config.hpp"
#include "core/trunk/mamba1/mamba1.hpp"

namespace exphil::test {

// The ids of a described network's weights by the names of core/trunk/mamba1/mamba1.hpp, found in it.
struct LayerIds {
  core::WeightId norm, norm_bias, in_proj, in_proj_bias, conv, conv_bias, x_proj, x_proj_bias, dt_proj,
      dt_bias, a, d, out_proj, out_proj_bias;
};
struct Ids {
  core::WeightId input_proj = core::kNone, input_proj_bias = core::kNone;
  core::WeightId norm_f = core::kNone, norm_f_bias = core::kNone;
  core::WeightId hidden = core::kNone, hidden_bias = core::kNone;  // of two-layer heads
  core::WeightId head = core::kNone, head_bias = core::kNone;
  std::vector<LayerIds> layers;
};
// The sizes too, apart from the loaders' part of the spec: dialect, window.
struct Form {
  core::mamba1::Config config;
  std::int64_t head_width = 0;  // hidden values of all two-layer heads
  Ids ids;
};
// Throws where the network is another trunk's.
Form form_of(const core::PolicyConfig& config);

using MambaValues = std::vector<float>;

// The weights of core::mamba1::Weights by the same names, to change one by one. Empty where there is none.
struct MambaLayer {
  MambaValues norm, norm_bias, in_proj, in_proj_bias, conv, conv_bias, x_proj, x_proj_bias, dt_proj,
      dt_proj_bias, a_log, d, out_proj, out_proj_bias;
};
struct MambaHead {
  MambaValues hidden, hidden_bias;  // {width, d_model}
  MambaValues out, out_bias;        // {count, width}
};
struct MambaWeights {
  core::mamba1::Config config;
  MambaValues input_proj, input_proj_bias;
  std::vector<MambaLayer> layers;
  MambaValues norm_f, norm_f_bias, head, head_bias;
  std::vector<MambaHead> heads;
  std::uint64_t fingerprint = 0;
};

// The weights of a policy, without two-layer heads.
MambaWeights mamba_weights(const core::PolicyWeights& policy);

// The policy of these weights; which of them exist decides the config's `has` and `head_widths`.
core::PolicyWeights described(MambaWeights weights);

// A policy of zeros, for what depends on sizes alone.
inline core::PolicyConfig config_of(const core::mamba1::Config& config) {
  return core::mamba1::describe(config).policy.config;
}

inline core::mamba1::Config mamba_config(const core::PolicyConfig& config) {
  return form_of(config).config;
}

// A fact as text: "edifice_mamba", "16"; empty where it is nothing.
std::string fact(const core::PolicyConfig& config, const std::string& name);

// The parts of one name of a state's values, of all layers.
template <class T>
std::vector<T> parts_of(const core::PolicyConfig& config, const std::vector<T>& values,
                        const std::string& name) {
  std::vector<T> parts;
  auto at = values.begin();
  for (const core::StatePart& part : config.network.states) {
    if (part.name == name) parts.insert(parts.end(), at, at + part.size());
    at += part.size();
  }
  return parts;
}

// Edifice's states of the convolution are {layers, taps - 1, channels}; ours {layers, channels, taps - 1}.
template <class T>
std::vector<T> turned(const core::PolicyConfig& config, const std::vector<T>& from) {
  const core::mamba1::Config c = mamba_config(config);
  const std::int64_t kept = c.d_conv - 1;
  std::vector<T> to(from.size());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(from.size()); ++i) {
    const std::int64_t layer = i / (kept * c.d_inner), k = i / c.d_inner % kept, channel = i % c.d_inner;
    to[static_cast<std::size_t>((layer * c.d_inner + channel) * kept + k)] =
        from[static_cast<std::size_t>(i)];
  }
  return to;
}

}  // namespace exphil::test
