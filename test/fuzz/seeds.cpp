// Writes the seed corpus: a small sound input of each kind, in a folder for each target. Run by .ci/fuzz.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/edifice_writer.hpp"
#include "support/gated_policy.hpp"
#include "support/head_policy.hpp"
#include "support/mamba3_policy.hpp"
#include "support/policy.hpp"
#include "support/safetensors_writer.hpp"

namespace {

using namespace exphil::test;

std::string root;
constexpr std::size_t kMostBytes = 65536;  // as .ci/fuzz bounds an input

void write(const std::string& target, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories(root + "/" + target);
  std::ofstream(root + "/" + target + "/" + name, std::ios::binary) << bytes;
}

std::string text(const Bytes& bytes) {
  return std::string(bytes.begin(), bytes.end());
}

PolicySpec small_policy(int layers) {
  PolicySpec spec;
  spec.d_input = 2;
  spec.d_model = 2;
  spec.n_layer = layers;
  spec.d_inner = 2;
  spec.d_state = 2;
  spec.d_conv = 2;
  spec.dt_rank = 1;
  spec.d_output = 3;
  return spec;
}

SafetensorsWriter layer() {
  SafetensorsWriter out;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t dim : shape) count *= dim;
    out.add_f32(name, std::move(shape), std::vector<float>(static_cast<std::size_t>(count), 0.5f));
  };
  add("complexity_gate.0.weight", {2, 3});
  add("complexity_gate.0.bias", {2});
  add("complexity_gate.2.weight", {2, 2});
  add("complexity_gate.2.bias", {2});
  add("U_proj.weight", {2, 3});
  add("V_proj.weight", {2, 3});
  add("T_conv.weight", {3, 1, 3});
  add("output_proj.weight", {3, 2});
  add("output_proj.bias", {3});
  return out;
}

// Maps of tensors in a layer, and a compressed description in a compressed part: sound, and one that
// announces more than any file may inflate to.
void write_parts() {
  using namespace erlang;
  NxTensor tensor;
  tensor.shape = {1}, tensor.size = 4;
  const Text layers =
      container_map({{"gru_1", container_map({{"bias", container_map({{"br", tensor.bytes()}})}})}});
  const Text metadata = config({{"backbone", atom("gru")}, {"temporal", atom("true")}}), data(4, '\0');
  write("policy", "gru", container(0, metadata, serialized(term(layers), data)));
  write("policy", "gru_silent", container(0, "", serialized(term(layers), data)));
  write("policy", "description", container(1, "", serialized(compressed_term(layers, layers.size()), data)));
  write("policy", "bomb", container(1, "", serialized(compressed_term(layers, 0xffffffff), data)));
}

// Each form and dialect of Edifice and ExPhil.
void write_edifice() {
  using namespace erlang;
  const Options play = {{"backbone", atom("mamba")}, {"temporal", atom("true")}, {"window_size", integer(6)}};
  const Options window = {{"window_size", integer(60)}};
  for (const int flag : {0, 1}) {
    const std::string end = std::to_string(flag);
    write("policy", "mamba" + end, file_of(trunk(), spec("mamba", window), "", flag));
    write("policy", "controller" + end, file_of(full_policy(), config(play), "", flag));
  }
  write("policy", "mamba_ssd", file_of(trunk("mamba_ssd_block_1"), spec("mamba_ssd", {})));
  write("policy", "silent", file_of(trunk(), ""));
  const Text body = term_of(full_policy(), play);
  write("policy", "term", body);
  write("policy", "term_utf8", term_of(trunk(), {{"backbone", atom("mamba", true)}}));
  write("policy", "term_compressed", compressed_term(body.substr(1), body.size() - 1));
  write_parts();
}

// GRU, LSTM, minGRU and minLSTM in each layout, with and without ExPhil's heads.
void write_gated() {
  using namespace erlang;
  GatedSpec small;
  small.d_input = 3, small.units = 2, small.n_layer = 1;
  for (const GatedSpec& each : gated_specs(small)) {
    const char* const arch = each.architecture.c_str();
    const Options play = {{"backbone", atom(arch)}, {"temporal", atom("true")}, {"window_size", integer(6)}};
    const Text build = each.heads ? config(play) : spec(arch, {{"hidden_size", integer(2)}});
    const std::string name = each.architecture + (each.fused ? "_fused" : "");
    write("policy", name + "_safetensors", text(gated_file(each).bytes()));
    for (const int flag : {0, 1}) {
      write("policy", name + std::to_string(flag), file_of(gated_file(each), build, flag));
    }
  }
}

// A gated DeltaNet with and without an input projection, as Edifice saves it.
void write_deltanet() {
  using namespace erlang;
  for (const bool projects : {false, true}) {
    DeltanetSpec small;
    small.units = 4, small.d_input = projects ? 3 : 4, small.taps = 2, small.n_layer = 1;
    small.projects = projects;
    const std::string name = std::string("gated_deltanet") + (projects ? "_projected" : "");
    const Options sizes = {{"hidden_size", integer(4)}, {"num_heads", integer(2)}};
    write("policy", name + "_safetensors", text(deltanet_file(small).bytes()));
    for (const int flag : {0, 1}) {
      write("policy", name + std::to_string(flag),
            file_of(deltanet_file(small), spec("gated_deltanet", sizes), flag));
    }
  }
}

// Mamba-2 and Mamba-3, with and without every part.
void write_mixers() {
  for (const std::int64_t more : {0, 1}) {
    Mamba2Spec second;
    second.d_input = second.d_model = second.headdim = second.d_state = second.d_conv = 2, second.n_layer = 1;
    second.mlp = 2 * more, second.biases = second.limits = second.norm_before_gate = more != 0;
    second.groups = 1 + more, second.norm = second.conv_bias = more == 0;
    write("policy", "mamba2_" + std::to_string(more), text(mamba2_file(second).bytes()));
    Mamba3Spec third;
    third.d_input = third.d_model = third.headdim = third.d_state = 2, third.n_layer = 1;
    third.mimo = third.norm = more != 0, third.ranks = third.groups = 1 + more, third.floor = 0.5;
    write("policy", "mamba3_" + std::to_string(more), text(mamba3_file(third).bytes()));
  }
}

// What Edifice wrote, where the shared folder has it and the fuzzer takes files of that size.
void write_recorded() {
  if (!have_trunks()) return;
  std::vector<RecordedTrunk> trunks = recorded_trunks();
  trunks.push_back({"gated_deltanet_e32_h32_w20", 20});
  for (const RecordedTrunk& trunk : trunks) {
    for (const char* const file : {"trunk.nx", "policy.bin", "params.safetensors"}) {
      std::ifstream in(trunk.path(file), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
      if (!bytes.empty() && bytes.size() <= kMostBytes) write("policy", trunk.name + "_" + file, bytes);
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  root = arguments[1];
  SafetensorsWriter plain;
  plain.add_f32("weight", {2, 3}, {1, 2, 3, 4, 5, 6});
  plain.add_bf16("half", {3}, {1, -2, 0.5});
  plain.add_f32("empty", {0, 4}, {});
  plain.metadata["format"] = "pt";
  write("safetensors", "plain", text(plain.bytes()));
  write("safetensors", "layer", text(layer().bytes()));
  for (const int layers : {1, 2}) {
    SafetensorsWriter policy = policy_file(small_policy(layers));
    policy.metadata["norm_epsilon"] = "1e-05";
    write("policy", "layers" + std::to_string(layers), text(policy.bytes()));
  }
  write_edifice();
  write_gated();
  write_deltanet();
  write_mixers();
  write_recorded();
  write("layer", "layer", text(layer().bytes()));
  write("state", "empty", "");
  write("scan", "request", std::string(96, '\x01'));
  return 0;
}
