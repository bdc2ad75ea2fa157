#include "core/trunk/gated/sizes.hpp"

#include <algorithm>

#include "core/limits.hpp"
#include "core/trunk/edifice.hpp"

namespace exphil::core::gated {

using formulas::Cell;

const std::vector<Names>& all_names() {
  static const std::vector<Names> all = {{"gru", Cell::gru, {"r", "z", "n"}},
                                         {"lstm", Cell::lstm, {"i", "f", "g", "o"}},
                                         {"min_gru", Cell::min_gru, {"gate", "candidate"}},
                                         {"min_lstm", Cell::min_lstm, {"forget", "input", "candidate"}}};
  return all;
}

const Names* names_of(const std::string& architecture) {
  return &*std::find_if(all_names().begin(), all_names().end(),
                        [&](const Names& names) { return names.architecture == architecture; });
}

std::string layer_name(const Names& names, std::int64_t layer) {
  return std::string(names.architecture) + "_" + std::to_string(layer + 1);
}

Sizes sizes_of(const Names& names, const TensorMap& tensors, const CheckpointReader& reader) {
  Sizes s;
  const bool recurrent = formulas::recurrent(names.cell);
  const std::string first = layer_name(names, 0);
  s.fused = recurrent && has_prefix(tensors, first + "_input_proj.");
  const std::string kernel = !recurrent ? first + "_" + names.gates[0] + ".kernel"
                             : s.fused  ? first + "_fused_scan." + first + "_recurrent_kernel"
                                        : first + ".hidden_kernel.wh" + names.gates[0];
  s.units = reader.shape(kernel, 2, s.fused ? "{units, gates * units}" : "{units, units}")[0];
  require_limit(s.units, kMaxDim, "the number of units", kernel);
  s.gates = formulas::gates_of(names.cell) * s.units;
  s.projects = has_prefix(tensors, "input_projection.");
  const std::string input = s.projects  ? "input_projection.kernel"
                            : recurrent ? "input_ln.gamma"
                                        : first + "_norm.gamma";
  s.d_input = reader.shape(input, s.projects ? 2 : 1, s.projects ? "{d_input, units}" : "{d_input}")[0];
  require_limit(s.d_input, kMaxDim, "d_input", input);
  // Layers are numbered from 1 without gaps; a gap shows as a tensor that is not read.
  const auto has_layer = [&](std::int64_t layer) {
    const std::string name = layer_name(names, layer);
    return has_prefix(tensors, name + "_") || has_prefix(tensors, name + ".");
  };
  while (s.layers <= kMaxLayers && has_layer(s.layers)) ++s.layers;
  require_limit(s.layers, kMaxLayers, "the number of layers", first);
  return s;
}

}  // namespace exphil::core::gated
