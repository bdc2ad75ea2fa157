// Policies of gated cells for the tests of the CUDA backend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/policy/config.hpp"
#include "support/catch.hpp"
#include "support/gated_policy.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

inline GatedSpec spec_of(const char* architecture, std::int64_t d_input, std::int64_t units,
                         bool fused = false) {
  GatedSpec spec;
  spec.architecture = architecture, spec.d_input = d_input, spec.units = units, spec.fused = fused;
  spec.projects = spec.architecture[0] == 'm' && d_input != units;
  spec.heads = d_input < units;
  return spec;
}

// Each cell, with what differs in the first layer: fewer values than units, more, and other padding.
inline std::vector<GatedSpec> gated_specs() {
  std::vector<GatedSpec> all = {spec_of("gru", 9, 34), spec_of("gru", 70, 34, true), spec_of("lstm", 41, 34),
                                spec_of("min_gru", 9, 34), spec_of("min_lstm", 65, 65)};
  all.front().n_layer = 3;
  return all;
}

inline std::vector<PolicyForm> gated_network_forms() {
  std::vector<PolicyForm> forms;
  for (const GatedSpec& spec : gated_specs()) {
    forms.push_back({spec.architecture + " " + std::to_string(spec.d_input), make_gated(spec)});
  }
  return forms;
}

// A product of what the cell writes replaces hidden.
inline std::shared_ptr<const core::PolicyWeights> gated_with_product() {
  auto made = std::make_shared<core::PolicyWeights>(*make_gated(spec_of("gru", 41, 34)));
  core::Network& n = made->config.network;
  Random random(5);
  for (core::Block& layer : n.layers) {
    core::Product product{core::writes(layer[layer.size() - 2]), core::writes(layer.back())};
    product.weight = static_cast<core::WeightId>(n.weights.size());
    n.weights.push_back({"closing product", 34, 34});
    made->values.push_back(random.vector(34 * 34, -0.5f, 0.5f));
    layer.back() = product;
  }
  core::check(n);
  return made;
}

// Why the GPU does not take a network; empty: it does.
template <class Call>
std::string why_not(Call call) {
  try {
    call();
  } catch (const core::Error& error) {
    CHECK(error.kind() == core::ErrorKind::unsupported);
    return error.what();
  }
  return "";
}

}  // namespace exphil::test
