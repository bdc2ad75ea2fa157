#include "core/trunk/state_spaces.hpp"

#include <algorithm>
#include <set>

#include "core/limits.hpp"
#include "core/text.hpp"
#include "core/trunk/edifice.hpp"

namespace exphil::core {

bool has_mixer_tensor(const TensorMap& tensors, const std::string& name) {
  const std::string last = "mixer." + name;
  return std::any_of(tensors.begin(), tensors.end(), [&last](const auto& item) {
    const std::string& each = item.first;
    return each.size() > last.size() && each.compare(each.size() - last.size(), last.size(), last) == 0;
  });
}

void refuse_mlps(const Checkpoint& file) {
  for (const auto& item : file.tensors()) {
    if (item.first.find(".mlp.") == std::string::npos && item.first.find(".norm2.") == std::string::npos)
      continue;
    bad_checkpoint("tensor ", quote(item.first),
                   " belongs to an MLP between the mixers, which is not supported");
  }
}

StateSpacesFile::StateSpacesFile(const Checkpoint& file, const CheckpointReader& reader)
    : file_(file),
      reader_(reader),
      prefix_(!reader.has("backbone.norm_f.weight") && reader.has("norm_f.weight") ? "" : "backbone.") {}

StateSpacesFile::Ends StateSpacesFile::ends() const {
  const Shape& in = reader_.shape("input_proj.weight", 2, "{d_model, d_input}");
  const Shape& out = reader_.shape("head.weight", 2, "{d_output, d_model}");
  require_limit(in[0], kMaxDim, "d_model", "input_proj.weight");
  require_limit(in[1], kMaxDim, "d_input", "input_proj.weight");
  require_limit(out[0], kMaxDim, "d_output", "head.weight");
  return {in[0], in[1], out[0]};
}

MixerEnds StateSpacesFile::mixer_ends(float norm_epsilon) const {
  const Ends found = ends();
  return {found.d_model, found.d_input, found.d_output, count_layers(), norm_epsilon, prefix_};
}

// Layers are numbered from 0 without gaps; a gap shows as a missing tensor when the layer is loaded.
std::int64_t StateSpacesFile::count_layers() const {
  const std::string start = prefix_ + "layers.";
  std::set<std::string> indices;
  for (const auto& item : file_.tensors()) {
    if (item.first.compare(0, start.size(), start) != 0) continue;
    const std::string rest = item.first.substr(start.size());
    const std::string index = rest.substr(0, rest.find('.'));
    const bool numeric = !index.empty() && index.find_first_not_of("0123456789") == std::string::npos;
    if (numeric) indices.insert(index);
  }
  if (indices.empty()) bad_checkpoint("tensor \"", start, "0.norm.weight\" is missing from ", file_.name());
  require_limit(static_cast<std::int64_t>(indices.size()), kMaxLayers, "the number of layers", start + "*");
  return static_cast<std::int64_t>(indices.size());
}

bool StateSpacesFile::any_layer_has(std::int64_t layers, const std::string& tensor) const {
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(layers); ++layer) {
    if (reader_.has(layer_prefix(layer) + tensor)) return true;
  }
  return false;
}

std::int64_t StateSpacesFile::window(const PolicyLoadOptions& options) const {
  return options.window ? *options.window : EdificeFile(file_).count("window_size").value_or(0);
}

}  // namespace exphil::core
