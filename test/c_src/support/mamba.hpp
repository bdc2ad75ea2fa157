// Mamba policies by their names: weights to change one by one, sizes, and the named parts of a state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/policy/config.hpp"
#include "core/trunk/mamba1/mamba1.hpp"

namespace exphil::test {

// The ids of a described network's weights by the names of core/trunk/mamba1/mamba1.hpp.
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

// The weights that core::mamba1::describe made the policy of, without two-layer heads.
core::mamba1::Weights mamba_weights(const core::PolicyWeights& policy);

inline core::mamba1::Config mamba_config(const core::PolicyConfig& config) {
  return form_of(config).config;
}

// A fact as text: "edifice_mamba", "16"; empty where it is nothing.
std::string fact(const core::PolicyConfig& config, const std::string& name);

// Whether a scan's inputs are decayed in a sequence of `frames` frames.
bool decays_input(const core::PolicyConfig& config, std::int64_t frames);

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
