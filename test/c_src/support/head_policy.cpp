#include "support/head_policy.hpp"

#include <cmath>

#include "support/numbers.hpp"
#include "support/shared_data.hpp"

namespace exphil::test {

namespace {

class Writer {
 public:
  explicit Writer(std::uint64_t seed) : random_(seed) {}
  SafetensorsWriter file;

  void matrix(const std::string& name, std::int64_t rows, std::int64_t columns, std::int64_t fan_in) {
    const float bound = 1.5f / std::sqrt(static_cast<float>(fan_in));
    file.add_f32(name, {rows, columns}, values(rows * columns, -bound, bound));
  }
  void vector(const std::string& name, std::int64_t size, float least = -0.5f, float most = 0.5f) {
    file.add_f32(name, {size}, values(size, least, most));
  }
  std::vector<float> values(std::int64_t count, float least, float most) {
    return random_.vector(static_cast<std::size_t>(count), least, most);
  }

  // Edifice's: {in, out}.
  void dense(const std::string& name, std::int64_t in, std::int64_t out) {
    matrix(name + ".kernel", in, out, in), vector(name + ".bias", out);
  }
  void norm(const std::string& name, std::int64_t size) {
    vector(name + ".gamma", size, 0.7f, 1.3f), vector(name + ".beta", size);
  }

 private:
  Random random_;
};

}  // namespace

SafetensorsWriter deltanet_file(const DeltanetSpec& spec) {
  Writer w(spec.seed);
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
  Writer w(spec.seed);
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

bool have_mamba2() {
  return have_shared("mamba23/README.md");
}

std::vector<std::string> recorded_mamba2() {
  return {"mamba2_base",   "mamba2_grouped", "mamba2_grouped_small",
          "mamba2_nonorm", "mamba2_dtlimit", "mamba2_dssm"};
}

std::string mamba2_path(const std::string& name, const char* file) {
  return shared_path("mamba23/" + name + "/" + file);
}

std::vector<double> mamba2_ssm_state(const std::string& name) {
  const std::string golden = mamba2_path(name, "golden.safetensors");
  if (name != "mamba2_grouped") return read_f64(golden, "ssm_state");
  const std::vector<float> large = read_f32(golden, "ssm_state");
  return {large.begin(), large.end()};
}

std::shared_ptr<const core::PolicyWeights> load_mamba2(const std::string& name) {
  return core::load_weights(core::Checkpoint::open(mamba2_path(name)), {});
}

}  // namespace exphil::test
