#include "support/head_policy.hpp"

#include "support/random_writer.hpp"

namespace exphil::test {

SafetensorsWriter deltanet_file(const DeltanetSpec& spec) {
  RandomWriter w(spec.seed);
  const std::int64_t units = spec.units;
  w.file.metadata["exphil_native.num_heads"] = std::to_string(spec.heads);
  if (spec.window > 0) w.file.metadata["exphil_native.window_size"] = std::to_string(spec.window);
  if (spec.projects) w.dense("input_projection", spec.d_input, units);
  for (std::int64_t i = 1; i <= spec.n_layer; ++i) {
    const std::string of = "gated_delta_net_" + std::to_string(i) + "_";
    w.norm(of + "norm", units);
    w.file.add_f32(of + "short_conv.kernel", {spec.taps, 1, units}, w.values(spec.taps * units, -0.7f, 0.7f));
    w.vector(of + "short_conv.bias", units);
    w.dense(of + "qkvbag_proj", units, 6 * units);
    w.dense(of + "out_proj", units, units);
  }
  w.norm("final_norm", units);
  return std::move(w.file);
}

SafetensorsWriter mamba2_file(const Mamba2Spec& spec) {
  RandomWriter w(spec.seed);
  const std::int64_t d_ssm = spec.heads * spec.headdim, d_inner = d_ssm + spec.mlp, model = spec.d_model;
  const std::int64_t channels = d_ssm + 2 * spec.groups * spec.d_state;
  const std::int64_t rows = 2 * spec.mlp + d_ssm + channels + spec.heads;
  w.file.metadata = {{"ngroups", std::to_string(spec.groups)},
                     {"norm_before_gate", spec.norm_before_gate ? "true" : "false"},
                     {"mixer", "mamba2"}};
  if (spec.limits) w.file.metadata["dt_limit_min"] = "0.3", w.file.metadata["dt_limit_max"] = "0.8";
  if (spec.window > 0) w.file.metadata["exphil_native.window_size"] = std::to_string(spec.window);
  w.matrix("input_proj.weight", model, spec.d_input, spec.d_input), w.vector("input_proj.bias", model);
  for (std::int64_t i = 0; i < spec.n_layer; ++i) {
    const std::string of = spec.prefix + "layers." + std::to_string(i) + ".", mixer = of + "mixer.";
    w.vector(of + "norm.weight", model, 0.7f, 1.3f);
    w.matrix(mixer + "in_proj.weight", rows, model, model);
    w.file.add_f32(mixer + "conv1d.weight", {channels, 1, spec.d_conv},
                   w.values(channels * spec.d_conv, -0.7f, 0.7f));
    w.vector(mixer + "dt_bias", spec.heads), w.vector(mixer + "A_log", spec.heads);
    w.vector(mixer + "D", spec.skip_of_value ? d_ssm : spec.heads);
    w.matrix(mixer + "out_proj.weight", model, d_inner, d_inner);
    if (spec.norm) w.vector(mixer + "norm.weight", d_ssm, 0.7f, 1.3f);
    if (spec.conv_bias) w.vector(mixer + "conv1d.bias", channels);
    if (spec.biases) w.vector(mixer + "in_proj.bias", rows), w.vector(mixer + "out_proj.bias", model);
  }
  w.vector(spec.prefix + "norm_f.weight", model, 0.7f, 1.3f);
  w.matrix("head.weight", spec.d_output, model, model), w.vector("head.bias", spec.d_output);
  return std::move(w.file);
}

std::vector<PolicyForm> head_forms(std::int64_t channels, std::int64_t keys, std::int64_t n_layer,
                                   std::int64_t window) {
  std::vector<PolicyForm> all;
  const auto add = [&](const char* name, const Mamba2Spec& spec) {
    all.push_back({name, load_policy(mamba2_file(spec))});
  };
  Mamba2Spec plain;
  plain.headdim = channels, plain.d_state = keys, plain.n_layer = n_layer, plain.window = window;
  plain.d_model = channels + 1, plain.heads = 3, plain.d_output = 9;
  Mamba2Spec before = plain, none = plain, mlp = plain, alone = plain;
  before.groups = before.heads = 2, before.norm_before_gate = before.skip_of_value = true, before.d_conv = 2;
  none.norm = none.conv_bias = false, none.biases = none.limits = true, none.prefix = "", none.d_conv = 1;
  mlp.groups = 3, mlp.mlp = 2 * channels + 1, mlp.limits = true;
  alone.mlp = channels, alone.heads = 1, alone.norm_before_gate = alone.skip_of_value = true;
  add("mamba2", plain), add("mamba2, norm before the gate", before), add("mamba2 without a norm", none);
  add("mamba2 with a part that is gated alone", mlp), add("mamba2 of one head", alone);
  DeltanetSpec delta;
  delta.units = 2 * channels, delta.n_layer = n_layer, delta.window = window;
  all.push_back({"gated_deltanet", load_policy(deltanet_file(delta))});
  delta.heads = 1, delta.projects = false, delta.taps = 1, delta.units = delta.d_input = channels;
  all.push_back({"gated_deltanet of one head", load_policy(deltanet_file(delta))});
  return all;
}

std::vector<NamedPolicy> small_head_policies() {
  std::vector<NamedPolicy> all;
  for (const PolicyForm& form : head_forms(3, 4)) all.push_back({form.name, form.weights});
  return all;
}

}  // namespace exphil::test
