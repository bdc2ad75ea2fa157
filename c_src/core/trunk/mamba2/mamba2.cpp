#include "core/trunk/mamba2/mamba2.hpp"

#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/limits.hpp"
#include "core/trunk/mamba2/description.hpp"
#include "core/trunk/stated.hpp"

namespace exphil::core::mamba2 {

namespace {

class Loader {
 public:
  Loader(const Checkpoint& file, const PolicyLoadOptions& options)
      : file_(file),
        reader_(file.tensors(), {"path", file.name(), "a Mamba-2 policy"}, options.check_finite),
        names_(file_, reader_) {
    refuse_mlps(file_);
    settings_ = settings_of(file, options);
    window_ = names_.window(options);
  }

  PolicyWeights load() {
    infer();
    return read_mixers(file_, reader_, config(), describe(s_, settings_));
  }

 private:
  // Of in_proj's rows {z0, x0 (each mlp), z (d_ssm), x B C (channels), dt (heads)}.
  void infer() {
    s_.ends = names_.mixer_ends(settings_.norm_epsilon);
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
      return names_.any_layer_has(s_.ends.layers, std::string("mixer.") + tensor);
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

  PolicyConfig config() {
    PolicyConfig config;
    config.trunk = "mamba2";
    config.d_input = s_.ends.d_input, config.d_output = s_.ends.d_output;
    config.window = window_;
    config.state_signature = {s_.ends.layers, s_.d_ssm, s_.d_state, s_.d_conv};
    config.facts = {{"d_model", s_.ends.d_model},
                    {"d_inner", s_.d_inner},
                    {"d_ssm", s_.d_ssm},
                    {"d_state", s_.d_state},
                    {"d_conv", s_.d_conv},
                    {"num_heads", s_.heads},
                    {"headdim", s_.d_ssm / s_.heads},
                    {"ngroups", settings_.groups},
                    {"norm_before_gate", std::string(settings_.norm_before_gate ? "true" : "false")},
                    {"dt_limit_min", static_cast<double>(settings_.dt_lowest)},
                    {"dt_limit_max", limit_fact(settings_.dt_highest)},
                    {"norm_epsilon", static_cast<double>(settings_.norm_epsilon)},
                    {"mixer_norm_epsilon", static_cast<double>(settings_.mixer_norm_epsilon)},
                    {"settings_from", std::string(settings_.from)}};
    for (const float value :
         {settings_.dt_lowest, settings_.dt_highest, settings_.norm_epsilon, settings_.mixer_norm_epsilon}) {
      config.identity.push_back(hex(hash64(&value, sizeof value)));
    }
    config.identity.push_back(std::to_string(settings_.groups));
    config.identity.emplace_back(settings_.norm_before_gate ? "norm, gate" : "gate, norm");
    return config;
  }
  const Checkpoint& file_;
  CheckpointReader reader_;
  const StateSpacesFile names_;
  Settings settings_;
  std::int64_t window_ = 0;
  Sizes s_;
};

PolicyWeights load(const Checkpoint& file, const PolicyLoadOptions& options) {
  return Loader(file, options).load();
}

// Of Mamba-3 too, whose line in the table is before this one.
bool has_names(const TensorMap& tensors) {
  return has_mixer_tensor(tensors, "dt_bias");
}

}  // namespace

Trunk trunk() {
  return {"mamba2", {}, {}, has_names, load, initial_weights};
}

}  // namespace exphil::core::mamba2
