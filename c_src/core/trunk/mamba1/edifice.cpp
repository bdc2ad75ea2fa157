// Loads policies with Edifice's names.

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/trunk/mamba1/edifice_options.hpp"
#include "core/trunk/mamba1/loaders.hpp"

namespace exphil::core::mamba1 {

namespace {

// ExPhil's heads, in the order of its logits.
constexpr const char* kHeads[] = {"buttons", "main_x", "main_y", "c_x", "c_y", "shoulder"};

template <class... Parts>
[[noreturn]] void bad(const Parts&... parts) {
  fail(ErrorKind::invalid_checkpoint, "path", parts...);
}

bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

bool is_head(const std::string& tensor) {
  return std::any_of(std::begin(kHeads), std::end(kHeads), [&](const char* head) {
    return starts_with(tensor, std::string(head) + "_hidden.") ||
           starts_with(tensor, std::string(head) + "_logits.");
  });
}

// Drops what has no effect on inference: the random state of dropout.
TensorMap relevant(const TensorMap& tensors) {
  TensorMap kept;
  for (const auto& [name, view] : tensors) {
    if (starts_with(name, "action_emb_")) {
      bad("tensor ", quote(name),
          " belongs to ExPhil's learned embeddings, which are dense layers, not a Mamba");
    }
    const std::string key = ".key";
    const bool random_state = starts_with(name, "dropout_") && name.size() > key.size() &&
                              name.compare(name.size() - key.size(), key.size(), key) == 0 &&
                              view.dtype == Dtype::u32 && view.shape == Shape{2};
    if (!random_state) kept.emplace(name, view);
  }
  return kept;
}

class EdificeLoader {
 public:
  EdificeLoader(const Checkpoint& file, const PolicyLoadOptions& options)
      : file_(file),
        build_(file),
        tensors_(relevant(file.tensors())),
        reader_(tensors_, {"path", file.name(), "a Mamba policy of Edifice"}, options.check_finite) {
    weights_.config.norm_epsilon = norm_epsilon(file, options);
    weights_.config.spec = build_.spec(options);
    block_ = weights_.config.spec.dialect == Dialect::edifice_mamba ? "mamba_block_" : "mamba_ssd_block_";
  }

  PolicyWeights load() {
    if (build_.is_policy() && build_.option("temporal") != "true") {
      bad("the policy has temporal: false: it reads single frames with dense layers and is not a Mamba");
    }
    infer();
    Config& c = weights_.config;
    weights_.layers.resize(static_cast<std::size_t>(c.n_layer));
    if (has_heads()) weights_.heads.resize(std::size(kHeads));
    TensorReader parameters(reader_, &weights_);
    if (c.spec.input_projection) {
      parameters.take("input_projection.kernel", {c.d_input, c.d_model}, "{d_input, d_model}",
                      weights_.input_proj, true);
      parameters.take("input_projection.bias", {c.d_model}, "{d_model}", weights_.input_proj_bias);
    }
    for (std::int64_t layer = 0; layer < c.n_layer; ++layer) load_layer(layer, parameters);
    load_heads(parameters);
    reader_.require_all_taken();
    compare_with_build();
    weights_.fingerprint = weights_fingerprint(file_.tensors(), identity_of(c));
    return describe(std::move(weights_));
  }

 private:
  std::string layer_prefix(std::int64_t layer) const { return block_ + std::to_string(layer + 1) + "_"; }

  // Layers are numbered from 1 without gaps; a gap shows as a missing tensor.
  std::int64_t count_layers() const {
    std::int64_t count = 0;
    while (count <= kMaxLayers && has_prefix(tensors_, layer_prefix(count))) ++count;
    require_limit(count, kMaxLayers, "the number of layers", block_ + "*");
    return std::max<std::int64_t>(count, 1);
  }

  void infer() {
    Config& c = weights_.config;
    c.n_layer = count_layers();
    const std::string first = layer_prefix(0);
    const Shape& in = reader_.shape(first + "in_proj.kernel", 2, "{d_model, 2 d_inner}");
    if (in[1] % 2 != 0) bad("tensor \"", first, "in_proj.kernel\" has ", in[1], " columns, an odd number");
    c.d_model = in[0], c.d_inner = in[1] / 2;
    c.d_conv = reader_.shape(first + "conv_dw_conv.kernel", 3, "{d_conv, 1, d_inner}")[0];
    c.dt_rank = reader_.shape(first + "ssm_dt_rank.kernel", 2, "{d_inner, dt_rank}")[1];
    const Shape& bc = reader_.shape(first + "ssm_bc_proj.kernel", 2, "{d_inner, 2 d_state}");
    if (bc[1] % 2 != 0)
      bad("tensor \"", first, "ssm_bc_proj.kernel\" has ", bc[1], " columns, an odd number");
    c.d_state = bc[1] / 2;
    c.spec.input_projection = has_prefix(tensors_, "input_projection.");
    c.d_input = c.spec.input_projection ? reader_.shape("input_projection.kernel", 2, "{d_input, d_model}")[0]
                                        : c.d_model;
    require_limit(c.d_model, kMaxDim, "d_model", first + "in_proj.kernel");
    require_limit(c.d_inner, kMaxDim, "d_inner", first + "in_proj.kernel");
    require_limit(c.d_conv, kMaxConvTaps, "d_conv", first + "conv_dw_conv.kernel");
    require_limit(c.dt_rank, kMaxDim, "dt_rank", first + "ssm_dt_rank.kernel");
    require_limit(c.d_state, kMaxState, "d_state", first + "ssm_bc_proj.kernel");
    require_limit(c.d_input, kMaxDim, "d_input", "input_projection.kernel");
  }

  void load_layer(std::int64_t layer, TensorReader& parameters) {
    const Config& c = weights_.config;
    const std::string p = layer_prefix(layer), conv = p + "conv_dw_conv.";
    const Shape inner{c.d_inner};
    Layer& w = weights_.layers[static_cast<std::size_t>(layer)];
    parameters.take(p + "norm.gamma", {c.d_model}, "{d_model}", w.norm);
    parameters.take(p + "norm.beta", {c.d_model}, "{d_model}", w.norm_bias);
    parameters.take(p + "in_proj.kernel", {c.d_model, 2 * c.d_inner}, "{d_model, 2 d_inner}", w.in_proj,
                    true);
    parameters.take(p + "in_proj.bias", {2 * c.d_inner}, "{2 d_inner}", w.in_proj_bias);
    parameters.take(conv + "kernel", {c.d_conv, 1, c.d_inner}, "{d_conv, 1, d_inner}", w.conv, true);
    parameters.take(conv + "bias", inner, "{d_inner}", w.conv_bias);
    parameters.take(p + "ssm_dt_rank.kernel", {c.d_inner, c.dt_rank}, "{d_inner, dt_rank}", w.x_proj, true);
    parameters.take(p + "ssm_dt_rank.bias", {c.dt_rank}, "{dt_rank}", w.x_proj_bias);
    parameters.take(p + "ssm_bc_proj.kernel", {c.d_inner, 2 * c.d_state}, "{d_inner, 2 d_state}", w.x_proj,
                    true);
    parameters.take(p + "ssm_bc_proj.bias", {2 * c.d_state}, "{2 d_state}", w.x_proj_bias);
    parameters.take(p + "ssm_dt_proj.kernel", {c.dt_rank, c.d_inner}, "{dt_rank, d_inner}", w.dt_proj, true);
    parameters.take(p + "ssm_dt_proj.bias", inner, "{d_inner}", w.dt_proj_bias);
    parameters.take(p + "out_proj.kernel", {c.d_inner, c.d_model}, "{d_inner, d_model}", w.out_proj, true);
    parameters.take(p + "out_proj.bias", {c.d_model}, "{d_model}", w.out_proj_bias);
  }

  bool has_heads() const {
    return build_.is_policy() || std::any_of(tensors_.begin(), tensors_.end(),
                                             [](const auto& item) { return is_head(item.first); });
  }

  // Loads all six heads, or none: then the outputs are the hidden state.
  void load_heads(TensorReader& parameters) {
    Config& c = weights_.config;
    c.d_output = weights_.heads.empty() ? c.d_model : 0;
    for (std::size_t i = 0; i < weights_.heads.size(); ++i) {
      const std::string name = kHeads[i];
      const std::string hidden = name + "_hidden.", logits = name + "_logits.";
      const std::int64_t width = reader_.shape(hidden + "kernel", 2, "{d_model, width}")[1];
      const std::int64_t count = reader_.shape(logits + "kernel", 2, "{width, outputs}")[1];
      require_limit(width, kMaxDim, "the width of a head", hidden + "kernel");
      require_limit(count, kMaxDim, "the outputs of a head", logits + "kernel");
      Head& head = weights_.heads[i];
      parameters.take(hidden + "kernel", {c.d_model, width}, "{d_model, width}", head.hidden, true);
      parameters.take(hidden + "bias", {width}, "{width}", head.hidden_bias);
      parameters.take(logits + "kernel", {width, count}, "{width, outputs}", head.out, true);
      parameters.take(logits + "bias", {count}, "{outputs}", head.out_bias);
      c.groups.push_back({name, c.d_output, count});
      c.d_output += count;
    }
  }

  void compare(const char* name, std::int64_t shape, std::int64_t added = 0) const {
    const std::optional<std::int64_t> stated = build_.count(name);
    if (stated && *stated + added != shape) {
      bad("the file's ", name, " is ", *stated, ", but its tensors have ", shape - added);
    }
  }

  // Compares every dimension that the build options name with the shapes.
  void compare_with_build() const {
    if (!file_.build()) return;
    const Config& c = weights_.config;
    for (const char* alias : {"embed_size", "embed_dim", "obs_size", "input_dim", "input_size"}) {
      compare(alias, c.d_input);
    }
    compare("hidden_size", c.d_model);
    compare("state_size", c.d_state);
    compare("num_layers", c.n_layer);
    if (build_.option("backbone") != "mamba_2") compare("conv_size", c.d_conv);  // it ignores its conv_size
    const std::optional<std::int64_t> expand = build_.count("expand_factor");
    if (expand && checked_multiply(*expand, c.d_model, "path") != c.d_inner) {
      bad("the file's expand_factor is ", *expand, ", but its tensors have d_inner ", c.d_inner,
          " and d_model ", c.d_model);
    }
    for (const OutputGroup& group : c.groups) {
      if (group.name == "shoulder") compare("shoulder_buckets", group.count, 1);
      if (group.name != "shoulder" && group.name != "buttons") compare("axis_buckets", group.count, 1);
    }
  }

  const Checkpoint& file_;
  const EdificeOptions build_;
  const TensorMap tensors_;
  CheckpointReader reader_;
  std::string block_;
  Weights weights_;
};

}  // namespace

bool is_edifice(const Checkpoint& file) {
  if (file.format() != Checkpoint::Format::safetensors) return true;
  const TensorMap& tensors = file.tensors();
  return architecture_by_names(tensors) != nullptr || has_prefix(tensors, "input_projection.") ||
         file.metadata().count(std::string(kMetadataPrefix) + "dialect");
}

PolicyWeights load_edifice(const Checkpoint& file, const PolicyLoadOptions& options) {
  return EdificeLoader(file, options).load();
}

}  // namespace exphil::core::mamba1
