// Loads policies with the names of state-spaces/mamba and of transformers' Mamba.
#include "core/trunk/mamba1/state_spaces.hpp"

#include <set>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/trunk/mamba1/edifice_options.hpp"
#include "core/trunk/mamba1/loaders.hpp"

namespace exphil::core::mamba1 {

namespace {

template <class... Parts>
[[noreturn]] void bad(const Parts&... parts) {
  fail(ErrorKind::invalid_checkpoint, "path", parts...);
}

// Files with state-spaces' names fix every option but the window, which their metadata may have.
void apply(const Checkpoint& file, const PolicyLoadOptions& options, Spec* spec) {
  const auto refuse = [](const char* option) {
    fail(ErrorKind::invalid_argument, option, option,
         " does not apply to a checkpoint with state-spaces' names");
  };
  const Options given = read_options(options);
  if (given.dialect && *given.dialect != Dialect::state_spaces) refuse(":dialect");
  if (given.input_dt && *given.input_dt != InputDt::per_channel) refuse(":dt");
  if (given.chunk_size) refuse(":chunk_size");
  spec->window = options.window ? *options.window : EdificeOptions(file).count("window_size").value_or(0);
}

class WeightsLoader {
 public:
  WeightsLoader(const Checkpoint& file, const PolicyLoadOptions& options)
      : file_(file), reader_(file.tensors(), {"path", file.name(), "a Mamba policy"}, options.check_finite) {
    weights_.config.norm_epsilon = norm_epsilon(file, options);
    apply(file, options, &weights_.config.spec);
    const bool bare = !reader_.has("backbone.norm_f.weight") && reader_.has("norm_f.weight");
    naming_.prefix = bare ? "" : "backbone.";
  }

  PolicyWeights load() {
    infer_outer();
    Config& c = weights_.config;
    c.n_layer = count_layers();
    infer_mixer();
    weights_.layers.resize(static_cast<std::size_t>(c.n_layer));
    TensorReader parameters(reader_, &weights_);
    for (const NamedTensor& tensor : state_spaces_tensors(&weights_, naming_)) {
      parameters.take(tensor.name, tensor.shape, tensor.axes, *tensor.values);
    }
    reader_.require_all_taken();
    weights_.fingerprint = weights_fingerprint(file_.tensors(), identity_of(c));
    PolicyWeights made = describe(std::move(weights_));
    check_derived(reader_, made);
    return made;
  }

 private:
  std::string layer_prefix(std::int64_t layer) const {
    return naming_.prefix + "layers." + std::to_string(layer) + ".";
  }

  void infer_outer() {
    Config& c = weights_.config;
    const Shape& in = reader_.shape("input_proj.weight", 2, "{d_model, d_input}");
    const Shape& out = reader_.shape("head.weight", 2, "{d_output, d_model}");
    c.d_model = in[0];
    c.d_input = in[1];
    c.d_output = out[0];
    require_limit(c.d_model, kMaxDim, "d_model", "input_proj.weight");
    require_limit(c.d_input, kMaxDim, "d_input", "input_proj.weight");
    require_limit(c.d_output, kMaxDim, "d_output", "head.weight");
  }

  // Layers are numbered from 0 without gaps; a gap shows as a missing tensor when the layer is loaded.
  std::int64_t count_layers() const {
    const std::string start = naming_.prefix + "layers.";
    std::set<std::string> indices;
    for (const auto& item : file_.tensors()) {
      if (item.first.compare(0, start.size(), start) != 0) continue;
      const std::string rest = item.first.substr(start.size());
      const std::string index = rest.substr(0, rest.find('.'));
      const bool numeric = !index.empty() && index.find_first_not_of("0123456789") == std::string::npos;
      if (numeric) indices.insert(index);
    }
    if (indices.empty()) bad("tensor \"", start, "0.norm.weight\" is missing from ", file_.name());
    require_limit(static_cast<std::int64_t>(indices.size()), kMaxLayers, "the number of layers", start + "*");
    return static_cast<std::int64_t>(indices.size());
  }

  void infer_mixer() {
    Config& c = weights_.config;
    const std::string mixer = layer_prefix(0) + "mixer.";
    const std::int64_t doubled = reader_.shape(mixer + "in_proj.weight", 2, "{2 d_inner, d_model}")[0];
    if (doubled % 2 != 0) {
      bad("tensor \"", mixer, "in_proj.weight\" must have shape {2 d_inner, d_model}; got ", doubled,
          " rows, an odd number");
    }
    c.d_inner = doubled / 2;
    c.d_conv = reader_.shape(mixer + "conv1d.weight", 3, "{d_inner, 1, d_conv}")[2];
    c.d_state = reader_.shape(mixer + "A_log", 2, "{d_inner, d_state}")[1];
    c.dt_rank = reader_.shape(mixer + "dt_proj.weight", 2, "{d_inner, dt_rank}")[1];
    require_limit(c.d_inner, kMaxDim, "d_inner", mixer + "in_proj.weight");
    require_limit(c.d_conv, kMaxConvTaps, "d_conv", mixer + "conv1d.weight");
    require_limit(c.d_state, kMaxState, "d_state", mixer + "A_log");
    require_limit(c.dt_rank, kMaxDim, "dt_rank", mixer + "dt_proj.weight");
    naming_.projection_bias = any_layer_has("in_proj.bias") || any_layer_has("out_proj.bias");
    naming_.conv_bias = any_layer_has("conv1d.bias");
  }

  bool any_layer_has(const std::string& tensor) const {
    for (std::int64_t layer = 0; layer < weights_.config.n_layer; ++layer) {
      if (reader_.has(layer_prefix(layer) + "mixer." + tensor)) return true;
    }
    return false;
  }

  const Checkpoint& file_;
  CheckpointReader reader_;
  Naming naming_;
  Weights weights_;
};

}  // namespace

PolicyWeights load_state_spaces(const Checkpoint& file, const PolicyLoadOptions& options) {
  return WeightsLoader(file, options).load();
}

}  // namespace exphil::core::mamba1
