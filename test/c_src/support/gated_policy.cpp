#include "support/gated_policy.hpp"

#include <cmath>
#include <cstring>

#include "support/numbers.hpp"
#include "support/shared_data.hpp"

namespace exphil::test {

namespace {

class GatedWriter {
 public:
  explicit GatedWriter(const GatedSpec& spec) : spec_(spec), random_(spec.seed) {}

  SafetensorsWriter run() {
    if (spec_.window > 0) file_.metadata["exphil_native.window_size"] = std::to_string(spec_.window);
    if (spec_.projects) dense("input_projection", spec_.d_input, spec_.units);
    if (recurrent()) norm("input_ln", spec_.d_input);
    for (std::int64_t i = 1; i <= spec_.n_layer; ++i) layer(i);
    if (!recurrent()) norm("final_norm", spec_.units);
    const char* const heads[] = {"buttons", "main_x", "main_y", "c_x", "c_y", "shoulder"};
    for (std::int64_t i = 0; spec_.heads && i < 6; ++i) {
      const std::int64_t width = 7 + 2 * i;
      dense(std::string(heads[i]) + "_hidden", spec_.units, width);
      dense(std::string(heads[i]) + "_logits", width, i == 0 ? 8 : 3);
    }
    return std::move(file_);
  }

 private:
  bool recurrent() const { return spec_.architecture == "gru" || spec_.architecture == "lstm"; }
  std::vector<std::string> gates() const {
    if (spec_.architecture == "gru") return {"r", "z", "n"};
    if (spec_.architecture == "lstm") return {"i", "f", "g", "o"};
    if (spec_.architecture == "min_gru") return {"gate", "candidate"};
    return {"forget", "input", "candidate"};
  }

  void layer(std::int64_t index) {
    const std::string of = spec_.architecture + "_" + std::to_string(index);
    const std::int64_t in = recurrent() && index == 1 ? spec_.d_input : spec_.units, units = spec_.units;
    const auto count = static_cast<std::int64_t>(gates().size());
    if (!recurrent()) {
      norm(of + "_norm", units);
      for (const std::string& gate : gates()) dense(of + "_" + gate, units, units);
      return;
    }
    if (spec_.fused) {
      dense(of + "_input_proj", in, count * units);
      matrix(of + "_fused_scan." + of + "_recurrent_kernel", units, count * units);
    } else {
      axon(of, in);
    }
    norm(of + "_ln", units);
  }

  void axon(const std::string& of, std::int64_t in) {
    for (const std::string& gate : gates()) {
      matrix(of + ".input_kernel.wi" + gate, in, spec_.units);
      matrix(of + ".hidden_kernel.wh" + gate, spec_.units, spec_.units);
      const bool two = spec_.architecture == "gru" && gate == "n";
      vector(of + ".bias.b" + (two ? "in" : gate), spec_.units);
      if (two) vector(of + ".bias.bhn", spec_.units);
    }
    for (const char* state : {"h", "c"}) {
      if (*state == 'c' && spec_.architecture != "lstm") continue;
      const std::uint32_t key[2] = {static_cast<std::uint32_t>(random_.bits()),
                                    static_cast<std::uint32_t>(random_.bits())};
      Bytes bytes(sizeof(key));
      std::memcpy(bytes.data(), key, sizeof(key));
      file_.tensors[of + "_" + state + "_hidden_state.key"] = {"U32", {2}, bytes};
    }
  }

  void dense(const std::string& name, std::int64_t in, std::int64_t out) {
    matrix(name + ".kernel", in, out), vector(name + ".bias", out);
  }
  void norm(const std::string& name, std::int64_t size) {
    file_.add_f32(name + ".gamma", {size}, random_.vector(static_cast<std::size_t>(size), 0.7f, 1.3f));
    vector(name + ".beta", size);
  }
  void matrix(const std::string& name, std::int64_t in, std::int64_t out) {
    const float bound = 1.5f / std::sqrt(static_cast<float>(in));
    file_.add_f32(name, {in, out}, random_.vector(static_cast<std::size_t>(in * out), -bound, bound));
  }
  void vector(const std::string& name, std::int64_t size) {
    file_.add_f32(name, {size}, random_.vector(static_cast<std::size_t>(size), -0.5f, 0.5f));
  }

  const GatedSpec spec_;
  Random random_;
  SafetensorsWriter file_;
};

GatedSpec of_kind(GatedSpec spec, const char* architecture, bool fused, bool heads) {
  spec.architecture = architecture, spec.fused = fused, spec.heads = heads;
  spec.projects = architecture[0] == 'm' && spec.d_input != spec.units;
  return spec;
}

}  // namespace

SafetensorsWriter gated_file(const GatedSpec& spec) {
  return GatedWriter(spec).run();
}

std::shared_ptr<const core::PolicyWeights> make_gated(const GatedSpec& spec) {
  return load_policy(gated_file(spec));
}

std::vector<GatedSpec> gated_specs(const GatedSpec& spec) {
  return {of_kind(spec, "gru", false, true),      of_kind(spec, "gru", true, false),
          of_kind(spec, "lstm", false, true),     of_kind(spec, "lstm", true, false),
          of_kind(spec, "min_gru", false, false), of_kind(spec, "min_lstm", false, true)};
}

std::vector<PolicyForm> gated_forms(const GatedSpec& spec) {
  std::vector<PolicyForm> all;
  for (const GatedSpec& each : gated_specs(spec)) {
    all.push_back({(each.fused ? "fused " : "") + each.architecture, make_gated(each)});
  }
  return all;
}

std::vector<NamedPolicy> small_gated_policies() {
  GatedSpec wide, narrow;
  wide.d_input = 8, narrow.d_input = 3, narrow.units = 5, narrow.n_layer = 1, narrow.seed = 2;
  std::vector<NamedPolicy> all;
  for (const PolicyForm& form : gated_forms(wide)) {
    // The heads' relus are not differentiable everywhere; small_policies() has them.
    if (form.weights->config.groups.empty()) all.push_back({form.name, form.weights});
  }
  all.push_back({"gru of narrow frames", make_gated(of_kind(narrow, "gru", false, false))});
  all.push_back({"lstm of narrow frames", make_gated(of_kind(narrow, "lstm", false, false))});
  all.push_back({"min_lstm with a projection", make_gated(of_kind(narrow, "min_lstm", false, false))});
  all.push_back({"gru with heads", make_gated(of_kind(narrow, "gru", false, true))});
  return all;
}

std::string RecordedTrunk::path(const char* file) const {
  return shared_path("exphil/trunks/" + name + "/" + file);
}

std::vector<float> RecordedTrunk::io(const char* tensor) const {
  return read_f32(path("io.safetensors"), tensor);
}

std::shared_ptr<const core::PolicyWeights> RecordedTrunk::load(const char* file) const {
  return core::load_weights(core::Checkpoint::open(path(file)), {});
}

bool have_trunks() {
  return have_shared("exphil/trunks/README.md");
}

std::vector<RecordedTrunk> recorded_trunks() {
  return {{"gru_e32_h32_w20", 20},     {"gru_fused_e32_h32_w20", 20},  {"gru_e287_h256_w60", 60},
          {"lstm_e32_h32_w20", 20},    {"lstm_fused_e32_h32_w20", 20}, {"min_gru_e32_h32_w20", 20},
          {"min_lstm_e32_h32_w20", 20}};
}

}  // namespace exphil::test
