// Mamba policies by their names: weights to change one by one, sizes, and the named parts of a state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/policy/config.hpp"
#include "core/trunk/mamba1/mamba1.hpp"

namespace exphil::test {

// The weights that core::mamba1::describe made the policy of, without two-layer heads.
core::mamba1::Weights mamba_weights(const core::PolicyWeights& policy);

inline core::mamba1::Config mamba_config(const core::PolicyConfig& config) {
  return core::mamba1::form_of(config).config;
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
