// Loads policies with the names of state-spaces/mamba and of transformers' Mamba.
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/trunk/mamba1/mamba1.hpp"
#include "core/trunk/state_spaces.hpp"

namespace exphil::core::mamba1 {

namespace {

// Files with state-spaces' names fix every option but the window, which their metadata may have.
void apply(const StateSpacesFile& file, const PolicyLoadOptions& options, Spec* spec) {
  const auto refuse = [](const char* option) {
    fail(ErrorKind::invalid_argument, option, option,
         " does not apply to a checkpoint with state-spaces' names");
  };
  const Options given = read_options(options);
  if (given.dialect && *given.dialect != Dialect::state_spaces) refuse(":dialect");
  if (given.input_dt && *given.input_dt != InputDt::per_channel) refuse(":dt");
  if (given.chunk_size) refuse(":chunk_size");
  spec->window = file.window(options);
}

// Lists the tensors of a policy.
class Names : public StateSpacesParameters {
 public:
  explicit Names(const Config& config) : c_(config) {}

  void add_layer(const std::string& prefix, const LayerWeights& w) {
    const std::string mixer = prefix + "mixer.";
    const Shape inner{c_.d_inner}, state{c_.d_inner, c_.d_state};
    const std::int64_t projected = c_.dt_rank + 2 * c_.d_state;
    add(prefix + "norm.weight", {c_.d_model}, "{d_model}", w.norm);
    add(mixer + "in_proj.weight", {2 * c_.d_inner, c_.d_model}, "{2 d_inner, d_model}", w.in_proj);
    add(mixer + "conv1d.weight", {c_.d_inner, 1, c_.d_conv}, "{d_inner, 1, d_conv}", w.conv);
    add(mixer + "x_proj.weight", {projected, c_.d_inner}, "{dt_rank + 2 d_state, d_inner}", w.x_proj);
    add(mixer + "dt_proj.weight", {c_.d_inner, c_.dt_rank}, "{d_inner, dt_rank}", w.dt_proj);
    add(mixer + "dt_proj.bias", inner, "{d_inner}", w.dt_proj_bias);
    add(mixer + "A_log", state, "{d_inner, d_state}", w.a_log);
    add(mixer + "D", inner, "{d_inner}", w.d);
    add(mixer + "out_proj.weight", {c_.d_model, c_.d_inner}, "{d_model, d_inner}", w.out_proj);
    add(mixer + "conv1d.bias", inner, "{d_inner}", w.conv_bias);
    add(mixer + "in_proj.bias", {2 * c_.d_inner}, "{2 d_inner}", w.in_proj_bias);
    add(mixer + "out_proj.bias", {c_.d_model}, "{d_model}", w.out_proj_bias);
  }

 private:
  const Config& c_;
};

class StateSpacesLoader {
 public:
  StateSpacesLoader(const Checkpoint& file, const PolicyLoadOptions& options)
      : file_(file),
        reader_(file.tensors(), {"path", file.name(), "a Mamba policy"}, options.check_finite),
        names_(file_, reader_) {
    c_.norm_epsilon = norm_epsilon(file, options);
    apply(names_, options, &c_.spec);
  }

  PolicyWeights load() {
    const StateSpacesFile::Ends ends = names_.ends();
    c_.d_model = ends.d_model, c_.d_input = ends.d_input, c_.d_output = ends.d_output;
    c_.n_layer = names_.count_layers();
    infer_mixer();
    Description made = describe(c_);
    made.policy.parameters = state_spaces_parameters(c_, made.weights, names_.prefix());
    return read(file_, reader_, std::move(made));
  }

 private:
  void infer_mixer() {
    const std::string mixer = names_.layer_prefix(0) + "mixer.";
    const std::int64_t doubled = reader_.shape(mixer + "in_proj.weight", 2, "{2 d_inner, d_model}")[0];
    if (doubled % 2 != 0) {
      bad_checkpoint("tensor \"", mixer, "in_proj.weight\" must have shape {2 d_inner, d_model}; got ",
                     doubled, " rows, an odd number");
    }
    c_.d_inner = doubled / 2;
    c_.d_conv = reader_.shape(mixer + "conv1d.weight", 3, "{d_inner, 1, d_conv}")[2];
    c_.d_state = reader_.shape(mixer + "A_log", 2, "{d_inner, d_state}")[1];
    c_.dt_rank = reader_.shape(mixer + "dt_proj.weight", 2, "{d_inner, dt_rank}")[1];
    require_limit(c_.d_inner, kMaxDim, "d_inner", mixer + "in_proj.weight");
    require_limit(c_.d_conv, kMaxConvTaps, "d_conv", mixer + "conv1d.weight");
    require_limit(c_.d_state, kMaxState, "d_state", mixer + "A_log");
    require_limit(c_.dt_rank, kMaxDim, "dt_rank", mixer + "dt_proj.weight");
    c_.has.in_proj_bias = c_.has.out_proj_bias = names_.any_layer_has(c_.n_layer, "mixer.in_proj.bias") ||
                                                 names_.any_layer_has(c_.n_layer, "mixer.out_proj.bias");
    c_.has.conv_bias = names_.any_layer_has(c_.n_layer, "mixer.conv1d.bias");
  }

  const Checkpoint& file_;
  CheckpointReader reader_;
  const StateSpacesFile names_;
  Config c_;
};

}  // namespace

std::vector<PolicyParameter> state_spaces_parameters(const Config& c, const Weights& w,
                                                     const std::string& prefix) {
  Names names(c);
  names.add("input_proj.weight", {c.d_model, c.d_input}, "{d_model, d_input}", w.input_proj);
  names.add("input_proj.bias", {c.d_model}, "{d_model}", w.input_proj_bias);
  for (std::size_t layer = 0; layer < w.layers.size(); ++layer) {
    names.add_layer(prefix + "layers." + std::to_string(layer) + ".", w.layers[layer]);
  }
  names.add(prefix + "norm_f.weight", {c.d_model}, "{d_model}", w.norm_f);
  names.add("head.weight", {c.d_output, c.d_model}, "{d_output, d_model}", w.end.head);
  names.add("head.bias", {c.d_output}, "{d_output}", w.end.head_bias);
  return std::move(names.list);
}

PolicyWeights load_state_spaces(const Checkpoint& file, const PolicyLoadOptions& options) {
  return StateSpacesLoader(file, options).load();
}

}  // namespace exphil::core::mamba1
