// Loads policies with Edifice's names.
#include "core/trunk/edifice.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/trunk/mamba1/mamba1.hpp"

namespace exphil::core::mamba1 {

namespace {

constexpr float kDtMin = 0.001f, kDtMax = 0.1f;
constexpr std::int64_t kDefaultChunk = 32;

// Throws where neither the file nor the option says it.
Dialect dialect_of(const Checkpoint& file, const EdificeFile& stated, const std::optional<Dialect>& option) {
  const bool ssd_names = has_prefix(file.tensors(), "mamba_ssd_block_");
  std::optional<Dialect> dialect;
  if (stated.has_build()) {
    dialect = stated.architecture() == "mamba" ? Dialect::edifice_mamba : Dialect::edifice_mamba_ssd;
  } else if (const std::optional<std::string> name = stated.option("dialect")) {
    dialect.emplace();
    if (!parse_dialect(*name, &*dialect)) {
      bad_checkpoint("the metadata names the unknown dialect ", quote(*name));
    }
  }
  dialect = agree(dialect, option, ":dialect");
  if (!dialect) {
    fail(ErrorKind::invalid_argument, ":dialect", file.name(),
         " does not say which architecture of Edifice it is. The names of its tensors, ",
         ssd_names ? "mamba_ssd_block_1_..., are those of mamba_ssd: pass dialect: :edifice_mamba_ssd"
                   : "mamba_block_1_..., are those of mamba and of others: pass dialect: :edifice_mamba",
         " if it is that");
  }
  if (*dialect == Dialect::state_spaces) {
    fail(ErrorKind::invalid_argument, ":dialect",
         ":dialect is state_spaces, but the tensors have Edifice's names");
  }
  return *dialect;
}

InputDt input_dt_of(const EdificeFile& stated, const std::optional<InputDt>& option) {
  const std::optional<std::string> dt = stated.has_build() ? std::nullopt : stated.option("dt");
  std::optional<InputDt> in_file;
  if (dt && *dt != "mean" && *dt != "per_channel") bad_checkpoint("the metadata's dt is ", quote(*dt));
  if (dt) in_file = *dt == "per_channel" ? InputDt::per_channel : InputDt::mean;
  return agree(in_file, option, ":dt").value_or(InputDt::mean);
}

// Everything but what the shapes determine. Throws invalid_argument where an option contradicts the file.
Spec spec_of(const Checkpoint& file, const EdificeFile& stated, const PolicyLoadOptions& load) {
  const Options options = read_options(load);
  Spec spec;
  spec.dialect = dialect_of(file, stated, options.dialect);
  spec.norm = NormKind::layer;
  spec.final_norm = false;
  spec.dt_min = kDtMin, spec.dt_max = kDtMax;
  spec.input_dt = input_dt_of(stated, options.input_dt);
  const bool ssd = spec.dialect == Dialect::edifice_mamba_ssd;
  if (ssd && spec.input_dt != InputDt::mean) {
    fail(ErrorKind::invalid_argument, ":dt", ":dt is :mean for :edifice_mamba_ssd, always");
  }
  spec.window = stated.window(load);
  if (!ssd && options.chunk_size) {
    fail(ErrorKind::invalid_argument, ":chunk_size", ":chunk_size applies to :edifice_mamba_ssd only");
  }
  // At play ExPhil builds :mamba_2 with the default, whatever chunk size it was trained with.
  const bool fixed_chunk = stated.is_policy() && stated.option("backbone") == "mamba_2";
  const std::optional<std::int64_t> chunk = fixed_chunk ? std::nullopt : stated.count("chunk_size");
  if (ssd) spec.chunk_size = agree(chunk, options.chunk_size, ":chunk_size").value_or(kDefaultChunk);
  return spec;
}

class Loader {
 public:
  Loader(const Checkpoint& file, const PolicyLoadOptions& options)
      : file_(file),
        stated_(file),
        tensors_(stated_.relevant()),
        reader_(tensors_, {"path", file.name(), "a Mamba policy of Edifice"}, options.check_finite) {
    c_.norm_epsilon = norm_epsilon(file, options);
    c_.spec = spec_of(file, stated_, options);
    block_ = c_.spec.dialect == Dialect::edifice_mamba ? "mamba_block_" : "mamba_ssd_block_";
  }

  PolicyWeights load() {
    c_.has = {true, true, true, true, true, false, false, false, false};
    infer();
    Description made = describe(c_);
    const Weights& w = made.weights;
    parameters_.add("input_projection.kernel", {c_.d_input, c_.d_model}, "{d_input, d_model}", w.input_proj);
    parameters_.add("input_projection.bias", {c_.d_model}, "{d_model}", w.input_proj_bias);
    for (std::size_t layer = 0; layer < w.layers.size(); ++layer) add_layer(layer, w.layers[layer]);
    parameters_.add_heads(heads_, c_.d_model, w.end);
    made.policy.parameters = parameters_.all;
    PolicyWeights policy = read(file_, reader_, std::move(made));
    compare_with_build();
    return policy;
  }

 private:
  std::string layer_prefix(std::size_t layer) const { return block_ + std::to_string(layer + 1) + "_"; }

  // Layers are numbered from 1 without gaps; a gap shows as a missing tensor.
  std::int64_t count_layers() const {
    std::size_t count = 0;
    while (count <= std::size_t{kMaxLayers} && has_prefix(tensors_, layer_prefix(count))) ++count;
    require_limit(static_cast<std::int64_t>(count), kMaxLayers, "the number of layers", block_ + "*");
    return std::max<std::int64_t>(static_cast<std::int64_t>(count), 1);
  }

  // Half of the tensor's columns.
  std::int64_t half(const std::string& name, const Shape& shape) const {
    if (shape[1] % 2 != 0) bad_checkpoint("tensor \"", name, "\" has ", shape[1], " columns, an odd number");
    return shape[1] / 2;
  }

  void infer() {
    c_.n_layer = count_layers();
    const std::string first = layer_prefix(0);
    const std::string in_proj = first + "in_proj.kernel", bc_proj = first + "ssm_bc_proj.kernel";
    const Shape& in = reader_.shape(in_proj, 2, "{d_model, 2 d_inner}");
    c_.d_model = in[0], c_.d_inner = half(in_proj, in);
    c_.d_conv = reader_.shape(first + "conv_dw_conv.kernel", 3, "{d_conv, 1, d_inner}")[0];
    c_.dt_rank = reader_.shape(first + "ssm_dt_rank.kernel", 2, "{d_inner, dt_rank}")[1];
    c_.d_state = half(bc_proj, reader_.shape(bc_proj, 2, "{d_inner, 2 d_state}"));
    c_.spec.input_projection = has_prefix(tensors_, "input_projection.");
    c_.d_input = c_.spec.input_projection
                     ? reader_.shape("input_projection.kernel", 2, "{d_input, d_model}")[0]
                     : c_.d_model;
    require_limit(c_.d_model, kMaxDim, "d_model", in_proj);
    require_limit(c_.d_inner, kMaxDim, "d_inner", in_proj);
    require_limit(c_.d_conv, kMaxConvTaps, "d_conv", first + "conv_dw_conv.kernel");
    require_limit(c_.dt_rank, kMaxDim, "dt_rank", first + "ssm_dt_rank.kernel");
    require_limit(c_.d_state, kMaxState, "d_state", bc_proj);
    require_limit(c_.d_input, kMaxDim, "d_input", "input_projection.kernel");
    heads_ = stated_.heads(reader_, tensors_);
    c_.groups = groups_of(heads_);
    for (const HeadSize& head : heads_) c_.head_widths.push_back(head.width);
    c_.d_output = heads_.empty() ? c_.d_model : c_.groups.back().first + c_.groups.back().count;
  }

  void add_layer(std::size_t layer, const LayerWeights& w) {
    const std::string p = layer_prefix(layer), conv = p + "conv_dw_conv.";
    const Shape inner{c_.d_inner};
    parameters_.add(p + "norm.gamma", {c_.d_model}, "{d_model}", w.norm);
    parameters_.add(p + "norm.beta", {c_.d_model}, "{d_model}", w.norm_bias);
    parameters_.add(p + "in_proj.kernel", {c_.d_model, 2 * c_.d_inner}, "{d_model, 2 d_inner}", w.in_proj);
    parameters_.add(p + "in_proj.bias", {2 * c_.d_inner}, "{2 d_inner}", w.in_proj_bias);
    parameters_.add(conv + "kernel", {c_.d_conv, 1, c_.d_inner}, "{d_conv, 1, d_inner}", w.conv);
    parameters_.add(conv + "bias", inner, "{d_inner}", w.conv_bias);
    parameters_.add(p + "ssm_dt_rank.kernel", {c_.d_inner, c_.dt_rank}, "{d_inner, dt_rank}", w.x_proj);
    parameters_.add(p + "ssm_dt_rank.bias", {c_.dt_rank}, "{dt_rank}", w.x_proj_bias);
    parameters_.add(p + "ssm_bc_proj.kernel", {c_.d_inner, 2 * c_.d_state}, "{d_inner, 2 d_state}", w.x_proj,
                    c_.dt_rank * c_.d_inner);
    parameters_.add(p + "ssm_bc_proj.bias", {2 * c_.d_state}, "{2 d_state}", w.x_proj_bias, c_.dt_rank);
    parameters_.add(p + "ssm_dt_proj.kernel", {c_.dt_rank, c_.d_inner}, "{dt_rank, d_inner}", w.dt_proj);
    parameters_.add(p + "ssm_dt_proj.bias", inner, "{d_inner}", w.dt_proj_bias);
    parameters_.add(p + "out_proj.kernel", {c_.d_inner, c_.d_model}, "{d_inner, d_model}", w.out_proj);
    parameters_.add(p + "out_proj.bias", {c_.d_model}, "{d_model}", w.out_proj_bias);
  }

  // Compares every dimension that the build options name with the shapes.
  void compare_with_build() const {
    stated_.compare_ends(c_.d_input, heads_);
    stated_.compare("hidden_size", c_.d_model);
    stated_.compare("state_size", c_.d_state);
    stated_.compare("num_layers", c_.n_layer);
    if (stated_.option("backbone") != "mamba_2")
      stated_.compare("conv_size", c_.d_conv);  // it ignores its own
    const std::optional<std::int64_t> expand =
        stated_.has_build() ? stated_.count("expand_factor") : std::nullopt;
    if (expand && checked_multiply(*expand, c_.d_model, "path") != c_.d_inner) {
      bad_checkpoint("the file's expand_factor is ", *expand, ", but its tensors have d_inner ", c_.d_inner,
                     " and d_model ", c_.d_model);
    }
  }

  const Checkpoint& file_;
  const EdificeFile stated_;
  const TensorMap tensors_;
  CheckpointReader reader_;
  std::string block_;
  Config c_;
  std::vector<HeadSize> heads_;
  EdificeParameters parameters_;
};

}  // namespace

PolicyWeights load_edifice(const Checkpoint& file, const PolicyLoadOptions& options) {
  return Loader(file, options).load();
}

}  // namespace exphil::core::mamba1
