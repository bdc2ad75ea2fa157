#include "core/trunk/mamba3/mamba3.hpp"

#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/limits.hpp"
#include "core/trunk/mamba3/description.hpp"
#include "core/trunk/stated.hpp"

namespace exphil::core::mamba3 {

namespace {

class Loader {
 public:
  Loader(const Checkpoint& file, const PolicyLoadOptions& options)
      : file_(file),
        reader_(file.tensors(), {"path", file.name(), "a Mamba-3 policy"}, options.check_finite),
        names_(file_, reader_),
        stated_(file, options, "a Mamba-3 policy"),
        window_(names_.window(options)) {}

  PolicyWeights load() {
    refuse_mlps(file_);
    stated_.refuse_others({"mamba3", "Mamba3"});
    stated_.require_options({"ngroups", "a_floor"});
    s_.ends = names_.mixer_ends(stated_.norm_epsilon());
    const auto floor = stated_.number({"A_floor", "a_floor"});
    if (!floor) stated_.by_default();
    s_.floor = floor.value_or(s_.floor);
    from_ = stated_.from();
    s_.mixer_norm_epsilon = stated_.number({"mixer_norm_epsilon"}).value_or(s_.mixer_norm_epsilon);
    infer();
    compare();
    return read_mixers(file_, reader_, config(), describe(s_));
  }

 private:
  std::string mixer() const { return names_.layer_prefix(0) + "mixer."; }
  bool any(const char* tensor) const {
    return names_.any_layer_has(s_.ends.layers, std::string("mixer.") + tensor);
  }

  void infer() {
    const Shape& bias = reader_.shape(mixer() + "B_bias", 3, "{heads, ranks, d_state}");
    s_.heads = bias[0], s_.ranks = bias[1], s_.d_state = bias[2];
    require_limit(s_.heads, kMaxDim, "the number of heads", mixer() + "B_bias");
    require_limit(s_.ranks, formulas::kMaxRanks, "the number of ranks", mixer() + "B_bias");
    require_limit(s_.d_state, kMaxState, "d_state", mixer() + "B_bias");
    const std::string out_proj = mixer() + "out_proj.weight";
    const std::int64_t d_inner = reader_.shape(out_proj, 2, "{d_model, d_inner}")[1];
    require_limit(d_inner, kMaxDim, "d_inner", out_proj);
    if (d_inner % s_.heads != 0) {
      bad_checkpoint("tensor \"", out_proj, "\" has d_inner ", d_inner, ", which ", s_.heads,
                     " heads do not divide");
    }
    s_.headdim = d_inner / s_.heads;
    s_.mimo = any("mimo_x") || any("mimo_z") || any("mimo_o") || s_.ranks > 1;
    s_.norm = any("norm.weight");
    infer_rows();
  }

  // Of in_proj's rows {z, x (each d_inner), B, C (each ranks groups d_state), dt, a, trap (each heads),
  // angles}: there are fewer angles than rows of B and C of one group.
  void infer_rows() {
    const std::string in_proj = mixer() + "in_proj.weight";
    const std::int64_t rows = reader_.shape(in_proj, 2, "{projections, d_model}")[0];
    require_limit(rows, 16 * kMaxDim, "the number of projections", in_proj);
    const std::int64_t rest = rows - 2 * s_.d_inner() - 3 * s_.heads, group = 2 * s_.ranks * s_.d_state;
    s_.groups = rest / group, s_.angles = rest % group;
    if (rest < group || s_.angles < 1 || 2 * s_.angles > s_.d_state || s_.heads % s_.groups != 0) {
      bad_checkpoint("tensor \"", in_proj, "\" has ", rows, " rows, which do not fit a Mamba-3 layer of ",
                     s_.heads, " heads with d_inner ", s_.d_inner(), ", d_state ", s_.d_state, " and ",
                     s_.ranks, " ranks");
    }
    require_limit(s_.projected(), kMaxDim, "the number of rows of B", in_proj);
    require_limit(s_.ranks * s_.heads * s_.d_state, 16 * kMaxDim, "the size of B of all heads", in_proj);
  }

  // What the shapes say, where something else says it too.
  void compare() {
    const auto same = [this](const char* name, bool equal, const std::string& stated,
                             const std::string& shown) {
      if (equal) return;
      bad_checkpoint(file_.name(), " says that ", name, " is ", stated, ", but its tensors are those of ",
                     shown);
    };
    if (const auto groups = stated_.count({"ngroups"})) {
      same("ngroups", *groups == s_.groups, std::to_string(*groups), std::to_string(s_.groups));
    }
    if (const auto fraction = stated_.number({"rope_fraction"})) {
      // As f32 it may be on the other side of a whole number of elements.
      const auto angles = [&](double by) { return angles_of(s_.d_state, double{*fraction} * (1 + by)); };
      same("rope_fraction", angles(1e-7) == s_.angles || angles(-1e-7) == s_.angles,
           std::to_string(*fraction),
           std::to_string(s_.angles) + " angles with d_state " + std::to_string(s_.d_state));
    }
    const auto mimo = stated_.boolean({"is_mimo"});
    if (mimo) same("is_mimo", *mimo == s_.mimo, *mimo ? "true" : "false", s_.mimo ? "MIMO" : "SISO");
    const auto ranks = s_.mimo ? stated_.count({"mimo_rank"}) : std::nullopt;
    if (ranks) same("mimo_rank", *ranks == s_.ranks, std::to_string(*ranks), std::to_string(s_.ranks));
    if (const auto norm = stated_.boolean({"is_outproj_norm"})) {
      same("is_outproj_norm", *norm == s_.norm, *norm ? "true" : "false",
           s_.norm ? "a layer with norm.weight" : "a layer without norm.weight");
    }
  }

  PolicyConfig config() const {
    PolicyConfig config;
    config.trunk = "mamba3";
    config.d_input = s_.ends.d_input, config.d_output = s_.ends.d_output;
    config.window = window_;
    config.state_signature = {s_.ends.layers, s_.d_inner(), s_.d_state, s_.ranks * s_.heads + s_.angles};
    const auto word = [](bool yes) { return std::string(yes ? "true" : "false"); };
    config.facts = {{"d_model", s_.ends.d_model},
                    {"d_inner", s_.d_inner()},
                    {"d_state", s_.d_state},
                    {"num_heads", s_.heads},
                    {"headdim", s_.headdim},
                    {"ngroups", s_.groups},
                    {"num_rope_angles", s_.angles},
                    {"is_mimo", word(s_.mimo)},
                    {"mimo_rank", s_.mimo ? Fact(s_.ranks) : Fact()},
                    {"is_outproj_norm", word(s_.norm)},
                    {"a_floor", static_cast<double>(s_.floor)},
                    {"norm_epsilon", static_cast<double>(s_.ends.norm_epsilon)},
                    {"mixer_norm_epsilon", static_cast<double>(s_.mixer_norm_epsilon)},
                    {"settings_from", std::string(from_)}};
    for (const float value : {s_.floor, s_.ends.norm_epsilon, s_.mixer_norm_epsilon}) {
      config.identity.push_back(hex(hash64(&value, sizeof value)));
    }
    return config;
  }

  const Checkpoint& file_;
  CheckpointReader reader_;
  const StateSpacesFile names_;
  StatedSettings stated_;
  const std::int64_t window_;
  Sizes s_;
  const char* from_ = "";
};

PolicyWeights load(const Checkpoint& file, const PolicyLoadOptions& options) {
  return Loader(file, options).load();
}

bool has_names(const TensorMap& tensors) {
  return has_mixer_tensor(tensors, "B_norm.weight") || has_mixer_tensor(tensors, "B_bias");
}

}  // namespace

Trunk trunk() {
  return {"mamba3", {}, {}, has_names, load, initial_weights};
}

}  // namespace exphil::core::mamba3
