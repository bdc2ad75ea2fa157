#include "core/policy/config.hpp"

#include <charconv>
#include <cmath>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "core/checkpoint/reader.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/limits.hpp"
#include "core/policy/edifice.hpp"
#include "core/policy/loading.hpp"

namespace exphil::core {

namespace {

template <class... Parts>
[[noreturn]] void bad(const Parts&... parts) {
  fail(ErrorKind::invalid_checkpoint, "path", parts...);
}

constexpr float kNormEpsilon = 1e-5f;

// Rejects a value that f32 rounds to zero or infinity.
bool to_epsilon(double value, float* epsilon) {
  *epsilon = static_cast<float>(value);
  return std::isfinite(*epsilon) && *epsilon > 0;
}

}  // namespace

void require_limit(std::int64_t size, std::int64_t limit, const std::string& what, const std::string& name) {
  if (size > limit) {
    fail(ErrorKind::limit_exceeded, "path", what, " is ", size, " by tensor \"", name, "\"; the limit is ",
         limit);
  }
}

// The option takes precedence over the metadata, the metadata over the default.
float norm_epsilon(const Checkpoint& file, const PolicyLoadOptions& options) {
  const char* const range = "must be a number that f32 holds as positive and finite; got ";
  float epsilon = kNormEpsilon;
  const auto found = file.metadata().find("norm_epsilon");
  if (options.norm_epsilon) {
    if (!to_epsilon(*options.norm_epsilon, &epsilon)) {
      fail(ErrorKind::invalid_argument, ":norm_epsilon", ":norm_epsilon ", range, *options.norm_epsilon);
    }
  } else if (found != file.metadata().end()) {
    const std::string& text = found->second;
    const char* const end = text.data() + text.size();
    double value = 0;
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end || !to_epsilon(value, &epsilon)) {
      bad("the metadata's norm_epsilon ", range, quote(text));
    }
  }
  return epsilon;
}

std::uint64_t weights_fingerprint(const Checkpoint& file, const PolicyConfig& config) {
  HashedParts parts;
  for (const auto& [name, view] : file.tensors()) {
    parts.add(name);
    parts.add(dtype_name(view.dtype));
    parts.add(view.shape.to_string());
    parts.add(hex(hash64(view.data, view.bytes)));
  }
  parts.add(hex(hash64(&config.norm_epsilon, sizeof config.norm_epsilon)));
  const PolicySpec& spec = config.spec;
  if (spec.dialect != Dialect::state_spaces) {
    parts.add(dialect_name(spec.dialect));
    parts.add(spec.input_dt == InputDt::mean ? "mean" : "per_channel");
    parts.add(spec.carried_decays_input() ? "decays_input" : "");
  }
  return parts.hash64();
}

namespace {

// Files with state-spaces' names fix every option but the window.
void apply(const PolicyLoadOptions& options, PolicySpec* spec) {
  const auto refuse = [](const char* option) {
    fail(ErrorKind::invalid_argument, option, option,
         " does not apply to a checkpoint with state-spaces' names");
  };
  if (options.dialect && *options.dialect != Dialect::state_spaces) refuse(":dialect");
  if (options.input_dt && *options.input_dt != InputDt::per_channel) refuse(":dt");
  if (options.chunk_size) refuse(":chunk_size");
  spec->window = options.window.value_or(0);
}

class WeightsLoader {
 public:
  WeightsLoader(const Checkpoint& file, const PolicyLoadOptions& options)
      : file_(file),
        reader_(file.tensors(), {"path", quote_path(file.path()), "a Mamba policy"}, options.check_finite) {
    weights_.config.norm_epsilon = norm_epsilon(file, options);
    apply(options, &weights_.config.spec);
    const bool bare = !reader_.has("backbone.norm_f.weight") && reader_.has("norm_f.weight");
    prefix_ = bare ? "" : "backbone.";
  }

  PolicyWeights load() {
    infer_outer();
    PolicyConfig& c = weights_.config;
    c.n_layer = count_layers();
    infer_mixer();
    weights_.input_proj =
        reader_.take("input_proj.weight", Shape{c.d_model, c.d_input}, "{d_model, d_input}");
    weights_.input_proj_bias = reader_.take("input_proj.bias", Shape{c.d_model}, "{d_model}");
    for (std::int64_t layer = 0; layer < c.n_layer; ++layer) weights_.layers.push_back(load_layer(layer));
    weights_.norm_f = reader_.take(prefix_ + "norm_f.weight", Shape{c.d_model}, "{d_model}");
    weights_.head = reader_.take("head.weight", Shape{c.d_output, c.d_model}, "{d_output, d_model}");
    weights_.head_bias = reader_.take("head.bias", Shape{c.d_output}, "{d_output}");
    reader_.require_all_taken();
    weights_.fingerprint = weights_fingerprint(file_, c);
    return std::move(weights_);
  }

 private:
  std::string layer_prefix(std::int64_t layer) const {
    return prefix_ + "layers." + std::to_string(layer) + ".";
  }

  void infer_outer() {
    PolicyConfig& c = weights_.config;
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
    const std::string start = prefix_ + "layers.";
    std::set<std::string> indices;
    for (const auto& item : file_.tensors()) {
      if (item.first.compare(0, start.size(), start) != 0) continue;
      const std::string rest = item.first.substr(start.size());
      const std::string index = rest.substr(0, rest.find('.'));
      const bool numeric = !index.empty() && index.find_first_not_of("0123456789") == std::string::npos;
      if (numeric) indices.insert(index);
    }
    if (indices.empty())
      bad("tensor \"", start, "0.norm.weight\" is missing from ", quote_path(file_.path()));
    require_limit(static_cast<std::int64_t>(indices.size()), kMaxLayers, "the number of layers", start + "*");
    return static_cast<std::int64_t>(indices.size());
  }

  void infer_mixer() {
    PolicyConfig& c = weights_.config;
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
    projection_bias_ = any_layer_has("in_proj.bias") || any_layer_has("out_proj.bias");
    conv_bias_ = any_layer_has("conv1d.bias");
  }

  bool any_layer_has(const std::string& tensor) const {
    for (std::int64_t layer = 0; layer < weights_.config.n_layer; ++layer) {
      if (reader_.has(layer_prefix(layer) + "mixer." + tensor)) return true;
    }
    return false;
  }

  PolicyLayerWeights load_layer(std::int64_t layer) {
    const PolicyConfig& c = weights_.config;
    const std::string mixer = layer_prefix(layer) + "mixer.";
    const Shape inner{c.d_inner};
    PolicyLayerWeights w;
    w.norm = reader_.take(layer_prefix(layer) + "norm.weight", Shape{c.d_model}, "{d_model}");
    w.in_proj =
        reader_.take(mixer + "in_proj.weight", Shape{2 * c.d_inner, c.d_model}, "{2 d_inner, d_model}");
    w.conv = reader_.take(mixer + "conv1d.weight", Shape{c.d_inner, 1, c.d_conv}, "{d_inner, 1, d_conv}");
    w.x_proj = reader_.take(mixer + "x_proj.weight", Shape{c.dt_rank + 2 * c.d_state, c.d_inner},
                            "{dt_rank + 2 d_state, d_inner}");
    w.dt_proj = reader_.take(mixer + "dt_proj.weight", Shape{c.d_inner, c.dt_rank}, "{d_inner, dt_rank}");
    w.dt_proj_bias = reader_.take(mixer + "dt_proj.bias", inner, "{d_inner}");
    w.a = load_a(mixer + "A_log");
    w.d = reader_.take(mixer + "D", inner, "{d_inner}");
    w.out_proj = reader_.take(mixer + "out_proj.weight", Shape{c.d_model, c.d_inner}, "{d_model, d_inner}");
    if (conv_bias_) w.conv_bias = reader_.take(mixer + "conv1d.bias", inner, "{d_inner}");
    if (projection_bias_) {
      w.in_proj_bias = reader_.take(mixer + "in_proj.bias", Shape{2 * c.d_inner}, "{2 d_inner}");
      w.out_proj_bias = reader_.take(mixer + "out_proj.bias", Shape{c.d_model}, "{d_model}");
    }
    return w;
  }

  std::vector<float> load_a(const std::string& name) {
    const PolicyConfig& c = weights_.config;
    std::vector<float> a = reader_.take(name, Shape{c.d_inner, c.d_state}, "{d_inner, d_state}");
    for (float& value : a) value = static_cast<float>(-std::exp(static_cast<double>(value)));
    reader_.check_finite(a, name, " as A = -exp(A_log)");
    return a;
  }

  const Checkpoint& file_;
  CheckpointReader reader_;
  std::string prefix_;
  bool projection_bias_ = false, conv_bias_ = false;
  PolicyWeights weights_;
};

}  // namespace

std::shared_ptr<const PolicyWeights> load_weights(const Checkpoint& file, const PolicyLoadOptions& options) {
  if (is_edifice(file)) return std::make_shared<const PolicyWeights>(load_edifice(file, options));
  return std::make_shared<const PolicyWeights>(WeightsLoader(file, options).load());
}

}  // namespace exphil::core
