#include "core/trunk/mamba2/mamba2.hpp"

#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/limits.hpp"
#include "core/trunk/builder.hpp"
#include "core/trunk/mamba2/settings.hpp"
#include "core/trunk/state_spaces.hpp"

namespace exphil::core::mamba2 {

namespace {

constexpr std::int64_t kMaxTaps = 16;

struct Sizes {
  std::int64_t d_model = 0, d_input = 0, d_output = 0, layers = 0;
  std::int64_t heads = 0, d_inner = 0, d_ssm = 0, d_state = 0, d_conv = 0;
  std::int64_t mlp = 0;       // channels that are gated alone: d_inner - d_ssm
  std::int64_t channels = 0;  // of the convolution
  std::int64_t skips = 0;     // values of D
  bool in_bias = false, out_bias = false, conv_bias = false, norm = false;
};

class Loader {
 public:
  Loader(const Checkpoint& file, const PolicyLoadOptions& options)
      : file_(file),
        reader_(file.tensors(), {"path", file.name(), "a Mamba-2 policy"}, options.check_finite),
        names_(file_, reader_) {
    refuse();
    settings_ = settings_of(file, options);
    window_ = names_.window(options);
  }

  PolicyWeights load() {
    infer();
    vectors();
    const Product in = b_.product(all(n_.frame), all(n_.hidden), "input_proj", true);
    n_.input = {in};
    parameters_.add("input_proj.weight", {s_.d_model, s_.d_input}, "{d_model, d_input}", in.weight);
    parameters_.add("input_proj.bias", {s_.d_model}, "{d_model}", in.bias);
    for (std::int64_t i = 0; i < s_.layers; ++i) b_.state("ssm", i, s_.d_ssm, s_.d_state);
    for (std::int64_t i = 0; i < s_.layers; ++i) b_.state("conv", i, s_.channels, s_.d_conv - 1);
    for (std::int64_t i = 0; i < s_.layers; ++i) layer(i);
    output();
    PolicyWeights policy;
    policy.config = config();
    policy.parameters = std::move(parameters_.list);
    check(policy.network());
    require_parameters(reader_, policy.parameters);
    policy.values = zeros_of<float>(policy.network());
    read_parameters(reader_, &policy);
    policy.fingerprint = weights_fingerprint(file_.tensors(), policy.config.identity);
    return policy;
  }

 private:
  // What has Mamba-2's names beside it, with other maths.
  void refuse() const {
    const TensorMap& tensors = file_.tensors();
    if (has_mixer_tensor(tensors, "B_norm.weight") || has_mixer_tensor(tensors, "B_bias")) {
      bad_checkpoint(
          file_.name(),
          " is a Mamba-3 policy, as the names of its tensors show (mixer.B_bias), which is not read "
          "yet; of this naming Mamba and Mamba-2 are");
    }
    for (const auto& item : tensors) {
      if (item.first.find(".mlp.") == std::string::npos && item.first.find(".norm2.") == std::string::npos)
        continue;
      bad_checkpoint("tensor ", quote(item.first),
                     " belongs to an MLP between the mixers, which is not supported");
    }
  }

  // Of in_proj's rows {z0, x0 (each mlp), z (d_ssm), x B C (channels), dt (heads)}.
  void infer() {
    const StateSpacesFile::Ends ends = names_.ends();
    s_.d_model = ends.d_model, s_.d_input = ends.d_input, s_.d_output = ends.d_output;
    s_.layers = names_.count_layers();
    const std::string mixer = names_.layer_prefix(0) + "mixer.", in_proj = mixer + "in_proj.weight";
    const std::int64_t rows = reader_.shape(in_proj, 2, "{projections, d_model}")[0];
    s_.heads = reader_.shape(mixer + "dt_bias", 1, "{heads}")[0];
    s_.d_inner = reader_.shape(mixer + "out_proj.weight", 2, "{d_model, d_inner}")[1];
    const Shape& conv = reader_.shape(mixer + "conv1d.weight", 3, "{channels, 1, d_conv}");
    s_.channels = conv[0], s_.d_conv = conv[2];
    require_limit(rows, kMaxDim, "the number of projections", in_proj);
    require_limit(s_.heads, kMaxDim, "the number of heads", mixer + "dt_bias");
    require_limit(s_.d_inner, kMaxDim, "d_inner", mixer + "out_proj.weight");
    require_limit(s_.channels, kMaxDim, "the number of channels", mixer + "conv1d.weight");
    require_limit(s_.d_conv, kMaxTaps, "d_conv", mixer + "conv1d.weight");
    s_.d_ssm = 2 * s_.d_inner + s_.channels + s_.heads - rows;
    s_.mlp = s_.d_inner - s_.d_ssm;
    if (s_.d_ssm < 1 || s_.mlp < 0 || s_.d_ssm % s_.heads != 0 || s_.channels <= s_.d_ssm) {
      bad_checkpoint("tensor \"", in_proj, "\" has ", rows, " rows, which do not fit a Mamba-2 layer of ",
                     s_.heads, " heads with d_inner ", s_.d_inner, " and ", s_.channels,
                     " channels in its convolution");
    }
    infer_groups();
    s_.skips = reader_.shape(mixer + "D", 1, "{heads}")[0] == s_.heads ? s_.heads : s_.d_ssm;
    const auto any = [&](const char* tensor) {
      return names_.any_layer_has(s_.layers, std::string("mixer.") + tensor);
    };
    s_.in_bias = any("in_proj.bias"), s_.out_bias = any("out_proj.bias");
    s_.conv_bias = any("conv1d.bias"), s_.norm = any("norm.weight");
  }

  void infer_groups() {
    const std::int64_t groups = settings_.groups, projected = s_.channels - s_.d_ssm;
    if (projected % 2 != 0 || groups > projected / 2 || projected / 2 % groups != 0 ||
        s_.heads % groups != 0) {
      bad_checkpoint("ngroups is ", groups, ", which does not divide the heads (", s_.heads,
                     ") and the rows of B and C (", projected, " in all); pass ngroups: as it was trained");
    }
    s_.d_state = projected / 2 / groups;
    require_limit(s_.d_state, kMaxState, "d_state", names_.layer_prefix(0) + "mixer.conv1d.weight");
  }

  Span all(VectorId id) const { return b_.all(id); }

  void vectors() {
    n_.frame = b_.vector("frame", s_.d_input), n_.hidden = b_.vector("hidden", s_.d_model);
    normed_ = b_.vector("normed", s_.d_model);
    if (s_.mlp > 0) z0_ = b_.vector("z0", s_.mlp), x0_ = b_.vector("x0", s_.mlp);
    z_ = b_.vector("z", s_.d_ssm), xbc_ = b_.vector("xbc", s_.channels), u_ = b_.vector("u", s_.channels);
    dt_ = b_.vector("dt", s_.heads), active_ = b_.vector("active_dt", s_.heads);
    y_ = b_.vector("y", s_.d_ssm);
    if (s_.norm) between_ = b_.vector("between", s_.d_ssm);
    joined_ = b_.vector("joined", s_.d_inner), final_ = b_.vector("final", s_.d_model);
  }

  void layer(std::int64_t index) {
    const std::string of = "layer " + std::to_string(index) + "'s ";
    const std::string prefix = names_.layer_prefix(static_cast<std::size_t>(index));
    const std::string mixer = prefix + "mixer.";
    const Norm norm =
        b_.norm(all(n_.hidden), all(normed_), of + "norm", NormKind::rms, settings_.norm_epsilon, false);
    parameters_.add(prefix + "norm.weight", {s_.d_model}, "{d_model}", norm.weight);
    Block block = {norm};
    std::vector<Span> outs = {all(z_), all(xbc_), all(dt_)};
    if (s_.mlp > 0) outs.insert(outs.begin(), {all(z0_), all(x0_)});
    const Product in = b_.split_product(all(normed_), outs, of + "in_proj", s_.in_bias, &block);
    const std::int64_t rows = b_.network.weight(in.weight).rows;
    parameters_.add(mixer + "in_proj.weight", {rows, s_.d_model}, "{projections, d_model}", in.weight);
    parameters_.add(mixer + "in_proj.bias", {rows}, "{projections}", in.bias);
    convolution(of, mixer, index, &block);
    recurrence(of, mixer, index, &block);
    gates(of, mixer, &block);
    Product out = b_.product(all(joined_), all(n_.hidden), of + "out_proj", s_.out_bias);
    out.adds = true;
    parameters_.add(mixer + "out_proj.weight", {s_.d_model, s_.d_inner}, "{d_model, d_inner}", out.weight);
    parameters_.add(mixer + "out_proj.bias", {s_.d_model}, "{d_model}", out.bias);
    block.emplace_back(out);
    n_.layers.push_back(std::move(block));
  }

  void convolution(const std::string& of, const std::string& mixer, std::int64_t index, Block* block) {
    Convolution conv{all(xbc_), all(u_)};
    conv.weight = b_.weight(of + "conv", s_.channels, s_.d_conv);
    if (s_.conv_bias) conv.bias = b_.weight(of + "conv's bias", 1, s_.channels);
    conv.taps = s_.d_conv, conv.state = static_cast<StateId>(s_.layers + index);
    parameters_.add(mixer + "conv1d.weight", {s_.channels, 1, s_.d_conv}, "{channels, 1, d_conv}",
                    conv.weight);
    parameters_.add(mixer + "conv1d.bias", {s_.channels}, "{channels}", conv.bias);
    block->emplace_back(conv);
  }

  void recurrence(const std::string& of, const std::string& mixer, std::int64_t index, Block* block) {
    const std::int64_t projected = settings_.groups * s_.d_state;
    const WeightId bias = b_.weight(of + "dt_bias", 1, s_.heads), log = b_.weight(of + "A_log", 1, s_.heads);
    block->emplace_back(Softplus{all(dt_), all(active_), bias, settings_.dt_lowest, settings_.dt_highest});
    HeadRecurrence heads;
    heads.groups = settings_.groups, heads.state = static_cast<StateId>(index);
    heads.value = {u_, 0, s_.d_ssm}, heads.key = {u_, s_.d_ssm, projected};
    heads.query = {u_, s_.d_ssm + projected, projected}, heads.out = all(y_);
    heads.rate = heads.decay = all(active_);
    heads.a = b_.weight(of + "A", 1, s_.heads);
    n_.weights.back().negative_exp_of = log;
    heads.d = b_.weight(of + "D", 1, s_.skips), heads.skips = s_.skips;
    parameters_.add(mixer + "dt_bias", {s_.heads}, "{heads}", bias);
    parameters_.add(mixer + "A_log", {s_.heads}, "{heads}", log);
    parameters_.add(mixer + "D", {s_.skips}, "{heads} or {d_ssm}", heads.d);
    block->emplace_back(heads);
  }

  // The norm does not cover the part that is gated alone.
  void gates(const std::string& of, const std::string& mixer, Block* block) {
    const Span out{joined_, s_.mlp, s_.d_ssm};
    if (s_.mlp > 0) block->emplace_back(Gate{all(x0_), all(z0_), {joined_, 0, s_.mlp}});
    if (!s_.norm) {
      block->emplace_back(Gate{all(y_), all(z_), out});
      return;
    }
    const bool before = settings_.norm_before_gate;
    Norm norm = b_.norm(before ? all(y_) : all(between_), before ? all(between_) : out, of + "gated norm",
                        NormKind::rms, settings_.mixer_norm_epsilon, false);
    norm.parts = settings_.groups;
    parameters_.add(mixer + "norm.weight", {s_.d_ssm}, "{d_ssm}", norm.weight);
    if (before) {
      block->emplace_back(norm);
      block->emplace_back(Gate{all(between_), all(z_), out});
    } else {
      block->emplace_back(Gate{all(y_), all(z_), all(between_)});
      block->emplace_back(norm);
    }
  }

  void output() {
    const Norm norm =
        b_.norm(all(n_.hidden), all(final_), "norm_f", NormKind::rms, settings_.norm_epsilon, false);
    n_.output.emplace_back(norm);
    parameters_.add(names_.prefix() + "norm_f.weight", {s_.d_model}, "{d_model}", norm.weight);
    const NetworkBuilder::Head head = b_.head(all(final_), 0, s_.d_output, true);
    parameters_.add("head.weight", {s_.d_output, s_.d_model}, "{d_output, d_model}", head.head);
    parameters_.add("head.bias", {s_.d_output}, "{d_output}", head.head_bias);
  }

  PolicyConfig config() {
    PolicyConfig config;
    config.trunk = "mamba2";
    config.d_input = s_.d_input, config.d_output = s_.d_output;
    config.window = window_;
    config.state_signature = {s_.layers, s_.d_ssm, s_.d_state, s_.d_conv};
    config.facts = {{"d_model", s_.d_model},
                    {"d_inner", s_.d_inner},
                    {"d_ssm", s_.d_ssm},
                    {"d_state", s_.d_state},
                    {"d_conv", s_.d_conv},
                    {"num_heads", s_.heads},
                    {"headdim", s_.d_ssm / s_.heads},
                    {"ngroups", settings_.groups},
                    {"norm_before_gate", std::string(settings_.norm_before_gate ? "true" : "false")},
                    {"dt_limit_min", static_cast<double>(settings_.dt_lowest)},
                    {"dt_limit_max", most_dt()},
                    {"norm_epsilon", static_cast<double>(settings_.norm_epsilon)},
                    {"mixer_norm_epsilon", static_cast<double>(settings_.mixer_norm_epsilon)},
                    {"settings_from", std::string(settings_.from)}};
    for (const float value :
         {settings_.dt_lowest, settings_.dt_highest, settings_.norm_epsilon, settings_.mixer_norm_epsilon}) {
      config.identity.push_back(hex(hash64(&value, sizeof value)));
    }
    config.identity.push_back(std::to_string(settings_.groups));
    config.identity.emplace_back(settings_.norm_before_gate ? "norm, gate" : "gate, norm");
    config.network = std::move(n_);
    config.products = products_of(config.network);
    return config;
  }
  // Nothing where there is no limit.
  Fact most_dt() const {
    const float most = settings_.dt_highest;
    return most == std::numeric_limits<float>::infinity() ? Fact() : Fact(static_cast<double>(most));
  }

  const Checkpoint& file_;
  CheckpointReader reader_;
  const StateSpacesFile names_;
  Settings settings_;
  std::int64_t window_ = 0;
  Sizes s_;
  NetworkBuilder b_;
  Network& n_ = b_.network;
  StateSpacesParameters parameters_;
  VectorId normed_ = kNone, z0_ = kNone, x0_ = kNone, z_ = kNone, xbc_ = kNone, u_ = kNone, dt_ = kNone;
  VectorId active_ = kNone, y_ = kNone, between_ = kNone, joined_ = kNone, final_ = kNone;
};

PolicyWeights load(const Checkpoint& file, const PolicyLoadOptions& options) {
  return Loader(file, options).load();
}

// Of Mamba-3 too, which the loader refuses by its name.
bool has_names(const TensorMap& tensors) {
  return has_mixer_tensor(tensors, "dt_bias");
}

}  // namespace

Trunk trunk() {
  return {"mamba2", {}, {}, has_names, load, nullptr};
}

}  // namespace exphil::core::mamba2
