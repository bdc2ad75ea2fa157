#include "support/mamba3_policy.hpp"

#include <algorithm>
#include <cmath>

#include "core/checkpoint/safetensors.hpp"
#include "support/random_writer.hpp"
#include "support/shared_data.hpp"

namespace exphil::test {

SafetensorsWriter mamba3_file(const Mamba3Spec& spec) {
  RandomWriter w(spec.seed);
  const std::int64_t inner = spec.heads * spec.headdim, model = spec.d_model, size = spec.d_state;
  const std::int64_t rows = 2 * inner + 2 * spec.ranks * spec.groups * size + 3 * spec.heads + spec.angles;
  w.file.metadata = {{"mixer", "mamba3"}};
  if (spec.floor >= 0) w.file.metadata["A_floor"] = std::to_string(spec.floor);
  if (spec.window > 0) w.file.metadata["exphil_native.window_size"] = std::to_string(spec.window);
  const auto cube = [&](const std::string& name, std::int64_t last, float least, float most) {
    w.file.add_f32(name, {spec.heads, spec.ranks, last},
                   w.values(spec.heads * spec.ranks * last, least, most));
  };
  w.matrix("input_proj.weight", model, spec.d_input, spec.d_input), w.vector("input_proj.bias", model);
  for (std::int64_t i = 0; i < spec.n_layer; ++i) {
    const std::string of = spec.prefix + "layers." + std::to_string(i) + ".", mixer = of + "mixer.";
    w.vector(of + "norm.weight", model, 0.7f, 1.3f);
    w.matrix(mixer + "in_proj.weight", rows, model, model);
    w.vector(mixer + "dt_bias", spec.heads), w.vector(mixer + "D", spec.heads, 0.7f, 1.3f);
    for (const char* const name : {"B", "C"}) {
      w.vector(mixer + name + "_norm.weight", size, 0.7f, 1.3f);
      cube(mixer + name + "_bias", size, -0.5f, 0.5f);
    }
    for (const char* const name : {"mimo_x", "mimo_z", "mimo_o"}) {
      if (spec.mimo) cube(mixer + name, spec.headdim, 0.3f, 1.0f);
    }
    if (spec.norm) w.vector(mixer + "norm.weight", inner, 0.7f, 1.3f);
    w.matrix(mixer + "out_proj.weight", model, inner, inner);
  }
  w.vector(spec.prefix + "norm_f.weight", model, 0.7f, 1.3f);
  w.matrix("head.weight", spec.d_output, model, model), w.vector("head.bias", spec.d_output);
  return std::move(w.file);
}

std::vector<PolicyForm> mamba3_forms(std::int64_t channels, std::int64_t keys, std::int64_t n_layer,
                                     std::int64_t window) {
  std::vector<PolicyForm> all;
  const auto add = [&](const char* name, const Mamba3Spec& spec) {
    all.push_back({name, load_policy(mamba3_file(spec))});
  };
  Mamba3Spec plain;
  plain.headdim = channels, plain.d_state = std::max<std::int64_t>(keys, 2), plain.n_layer = n_layer;
  plain.window = window, plain.d_model = channels + 1, plain.heads = 3, plain.d_output = 9;
  plain.angles = (plain.d_state + 2) / 4;
  Mamba3Spec groups = plain, mimo = plain, normed = plain, all_ranks = plain;
  groups.groups = groups.heads = 2, groups.angles = plain.d_state / 2, groups.floor = 1.2, groups.prefix = "";
  mimo.mimo = true, mimo.ranks = 3;
  normed.norm = true, normed.heads = 1;
  all_ranks.mimo = all_ranks.norm = true, all_ranks.ranks = 2, all_ranks.groups = 3;
  // Of another seed a norm of two or three values multiplies the roundings of bf16 tenfold.
  all_ranks.angles = plain.d_state / 2, all_ranks.seed = 5;
  add("mamba3", plain), add("mamba3 with groups", groups), add("mamba3, MIMO", mimo);
  add("mamba3 of one head, with a norm", normed), add("mamba3, MIMO with groups and a norm", all_ranks);
  Mamba3Spec one = plain;
  one.mimo = true;
  add("mamba3, MIMO of rank 1", one);
  return all;
}

std::vector<PolicyForm> matrix_forms(std::int64_t channels, std::int64_t keys, std::int64_t n_layer,
                                     std::int64_t window) {
  std::vector<PolicyForm> all = head_forms(channels, keys, n_layer, window);
  for (PolicyForm& form : mamba3_forms(channels, keys, n_layer, window)) all.push_back(std::move(form));
  return all;
}

std::vector<NamedPolicy> small_matrix_policies() {
  std::vector<NamedPolicy> all;
  for (const PolicyForm& form : matrix_forms(3, 4)) all.push_back({form.name, form.weights});
  return all;
}

bool have_mamba23() {
  return have_shared("mamba23/README.md");
}

// Those of real size are played by the Elixir tests.
std::vector<RecordedMixer> recorded_mixers() {
  return {{"mamba2_base", true},      {"mamba2_grouped", false}, {"mamba2_grouped_small", true},
          {"mamba2_nonorm", true},    {"mamba2_dtlimit", true},  {"mamba2_dssm", true},
          {"mamba3_siso", true},      {"mamba3_mimo", true},     {"mamba3_groups", true},
          {"mamba3_siso_norm", true}, {"mamba3_mimo_norm", true}};
}

std::string mixer_path(const std::string& name, const char* file) {
  return shared_path("mamba23/" + name + "/" + file);
}

std::shared_ptr<const core::PolicyWeights> load_mixer(const std::string& name) {
  return core::load_weights(core::Checkpoint::open(mixer_path(name)), {});
}

std::vector<double> mixer_values(const std::string& path, const std::string& tensor) {
  const core::Safetensors file = core::Safetensors::open(path);
  const core::TensorView& view = file.tensors().at(tensor);
  if (view.dtype == core::Dtype::f64) return read_f64(path, tensor);
  const std::vector<float> small = read_f32(path, tensor);
  return {small.begin(), small.end()};
}

double mixer_state_error(const std::string& name, const core::PolicyConfig& config,
                         const std::vector<double>& state) {
  constexpr double kTurn = 6.283185307179586;
  const std::string golden = mixer_path(name, "golden.safetensors");
  const core::Network& n = config.network;
  double worst = 0;
  for (std::size_t id = 0; id < n.states.size(); id += static_cast<std::size_t>(config.n_layer())) {
    const core::StatePart& part = n.states[id];
    const std::vector<double> expected = mixer_values(golden, part.name + "_state");
    const double* const found = state.data() + n.state_at(static_cast<core::StateId>(id));
    double most = 0, error = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double apart = found[i] - expected[i];
      error = std::max(error, std::abs(part.name == "angle" ? std::remainder(apart, kTurn) : apart));
      most = std::max(most, std::abs(expected[i]));
    }
    worst = std::max(worst, part.name == "angle" ? error : error / most);
  }
  return worst;
}

}  // namespace exphil::test
