// What load_weights says to files with Edifice's names: dialects, options, and every refusal with its reason.
#include "core/policy/config.hpp"

#include <cmath>
#include <cstring>

#include "support/catch.hpp"
#include "support/erlang_writer.hpp"
#include "support/errors.hpp"
#include "support/numbers.hpp"
#include "support/safetensors_writer.hpp"

namespace exphil::core {

namespace {

using namespace test::erlang;
using Options = std::vector<std::pair<std::string, Text>>;

struct Tensor {
  std::string layer, name;
  std::vector<std::int64_t> shape;
};

// E = 3, D = 4, I = 8, N = 2, K = 3, R = 1, one layer.
std::vector<Tensor> trunk(const std::string& block = "mamba_block_1") {
  return {{"input_projection", "kernel", {3, 4}},
          {"input_projection", "bias", {4}},
          {block + "_norm", "gamma", {4}},
          {block + "_norm", "beta", {4}},
          {block + "_in_proj", "kernel", {4, 16}},
          {block + "_in_proj", "bias", {16}},
          {block + "_conv_dw_conv", "kernel", {3, 1, 8}},
          {block + "_conv_dw_conv", "bias", {8}},
          {block + "_ssm_bc_proj", "kernel", {8, 4}},
          {block + "_ssm_bc_proj", "bias", {4}},
          {block + "_ssm_dt_rank", "kernel", {8, 1}},
          {block + "_ssm_dt_rank", "bias", {1}},
          {block + "_ssm_dt_proj", "kernel", {1, 8}},
          {block + "_ssm_dt_proj", "bias", {8}},
          {block + "_out_proj", "kernel", {8, 4}},
          {block + "_out_proj", "bias", {4}}};
}

std::vector<Tensor> whole_policy() {
  std::vector<Tensor> all = trunk();
  for (const std::string head : {"buttons", "main_x", "main_y", "c_x", "c_y", "shoulder"}) {
    const std::int64_t outputs = head == "buttons" ? 8 : head == "shoulder" ? 5 : 17;
    all.push_back({head + "_hidden", "kernel", {4, 6}}), all.push_back({head + "_hidden", "bias", {6}});
    all.push_back({head + "_logits", "kernel", {6, outputs}}),
        all.push_back({head + "_logits", "bias", {outputs}});
  }
  return all;
}

Text floats_of(std::int64_t count, float value) {
  Text data;
  for (std::int64_t i = 0; i < count; ++i) data.append(reinterpret_cast<const char*>(&value), sizeof value);
  return data;
}

// A container of these tensors, all 0.5 but for `poison`, with this metadata.
Text file_of(const std::vector<Tensor>& tensors, const Text& metadata, const std::string& poison = "") {
  std::vector<std::pair<Text, Text>> layers;
  Text data;
  for (const Tensor& tensor : tensors) {
    NxTensor placed;
    placed.shape = tensor.shape;
    placed.offset = static_cast<std::int64_t>(data.size());
    std::int64_t count = 1;
    for (const std::int64_t dim : tensor.shape) count *= dim;
    placed.size = 4 * count;
    data += floats_of(count, tensor.layer + "." + tensor.name == poison ? std::nanf("") : 0.5f);
    if (layers.empty() || layers.back().first != tensor.layer) layers.push_back({tensor.layer, ""});
    layers.back().second += tuple({binary(tensor.name), placed.bytes()});
  }
  std::vector<std::pair<Text, Text>> maps;
  for (const auto& [layer, pairs] : layers) {
    std::int64_t count = 0;
    for (const Tensor& tensor : tensors) count += tensor.layer == layer;
    const Text list_of = tag(108) + number(static_cast<std::uint64_t>(count), 4) + pairs + tag(106);
    maps.push_back({layer, tuple({atom("Elixir.Nx.Container.Map"), list_of, atom("ok")})});
  }
  return container(0, metadata, serialized(term(container_map(maps)), data));
}

Text spec(const char* arch, const Options& options) {
  std::vector<Text> pairs;
  for (const auto& [name, value] : options) pairs.push_back(tuple({atom(name), value}));
  return term(map(
      {{binary("__edifice_spec__"), map({{atom("arch"), atom(arch)}, {atom("build_opts"), list(pairs)}})}}));
}

Text config(const Options& options) {
  std::vector<std::pair<Text, Text>> pairs;
  for (const auto& [name, value] : options) pairs.push_back({atom(name), value});
  return term(map({{atom("config"), map(pairs)}}));
}

const Options kPlay = {{"backbone", atom("mamba")}, {"temporal", atom("true")}, {"window_size", integer(6)}};

std::shared_ptr<const PolicyWeights> load(const Text& bytes, const PolicyLoadOptions& options = {}) {
  const test::TemporaryFile file(test::Bytes(bytes.begin(), bytes.end()));
  return load_weights(Checkpoint::open(file.path()), options);
}

void refused(const Text& bytes, const std::string& part, const PolicyLoadOptions& options = {}) {
  const test::CaughtError error = test::error_of([&] { load(bytes, options); });
  INFO(part << " in: " << error.message);
  CHECK(error.thrown);
  CHECK((error.kind == ErrorKind::invalid_checkpoint || error.kind == ErrorKind::invalid_argument));
  CHECK(error.says(part));
}

Options with(Options options, const std::string& name, const Text& value) {
  for (auto& option : options) {
    if (option.first == name) return option.second = value, options;
  }
  options.push_back({name, value});
  return options;
}

}  // namespace

TEST_CASE("dialects and dimensions follow from build options and shapes", "[edifice]") {
  const auto bare =
      load(file_of(trunk(), spec("mamba", {{"window_size", integer(60)}, {"embed_dim", integer(3)}})));
  const PolicyConfig& c = bare->config;
  CHECK(c.spec.dialect == Dialect::edifice_mamba);
  CHECK(c.spec.window == 60);
  CHECK(c.spec.input_dt == InputDt::mean);
  CHECK(c.d_input == 3);
  CHECK(c.d_output == 4);
  CHECK(c.d_inner == 8);
  CHECK(c.d_conv == 3);
  CHECK(c.groups.empty());
  CHECK(bare->layers[0].a[1] == -2.0f);
  CHECK(bare->layers[0].d.empty());
  const auto ssd =
      load(file_of(trunk("mamba_ssd_block_1"),
                   spec("mamba_ssd", {{"window_size", integer(24)}, {"chunk_size", integer(16)}})));
  CHECK(ssd->config.spec.chunk_size == 16);
  CHECK_FALSE(ssd->config.spec.carried_decays_input());
  const auto policy = load(file_of(whole_policy(), config(kPlay)));
  CHECK(policy->config.d_output == 81);
  CHECK(policy->config.groups.at(5).name == "shoulder");
  CHECK(policy->config.groups.at(5).first == 76);
  std::vector<Tensor> square = trunk();
  square.erase(square.begin(), square.begin() + 2);
  const auto without = load(file_of(square, spec("mamba", {})));
  CHECK_FALSE(without->config.spec.input_projection);
  CHECK(without->config.d_input == 4);
  CHECK(without->config.spec.window == 0);
}

TEST_CASE("ExPhil's mamba_2 is mamba_ssd with chunks of 32, whatever its options say", "[edifice]") {
  std::vector<Tensor> tensors = whole_policy();
  for (Tensor& tensor : tensors) {
    if (tensor.layer.rfind("mamba_block", 0) == 0) tensor.layer.replace(0, 5, "mamba_ssd");
  }
  Options options = with(kPlay, "backbone", atom("mamba_2"));
  options.push_back({"chunk_size", integer(16)}), options.push_back({"conv_size", integer(9)});
  const auto policy = load(file_of(tensors, config(options)));
  CHECK(policy->config.spec.dialect == Dialect::edifice_mamba_ssd);
  CHECK(policy->config.spec.chunk_size == 32);
  CHECK(policy->config.spec.carried_decays_input());
}

TEST_CASE("what the file does not say is an option, and a contradiction is an error", "[edifice]") {
  const Text silent = file_of(trunk(), "");
  refused(silent, "pass dialect: :edifice_mamba or :edifice_mamba_ssd");
  PolicyLoadOptions options;
  options.dialect = Dialect::edifice_mamba;
  options.window = 7;
  options.input_dt = InputDt::per_channel;
  CHECK(load(silent, options)->config.spec.window == 7);
  CHECK(load(silent, options)->config.spec.input_dt == InputDt::per_channel);
  const Text said = file_of(trunk(), spec("mamba", {{"window_size", integer(60)}}));
  refused(said, ":window contradicts", options);
  options.window.reset(), options.dialect = Dialect::edifice_mamba_ssd;
  refused(said, ":dialect contradicts", options);
  options.dialect = Dialect::state_spaces;
  refused(silent, "the tensors have Edifice's names", options);
  PolicyLoadOptions chunk;
  chunk.chunk_size = 8;
  refused(said, "applies to :edifice_mamba_ssd only", chunk);
  PolicyLoadOptions channel;
  channel.input_dt = InputDt::per_channel;
  refused(file_of(trunk("mamba_ssd_block_1"), spec("mamba_ssd", {})), "always", channel);
}

TEST_CASE("states belong to one way of computing", "[edifice]") {
  const Text silent = file_of(trunk(), "");
  PolicyLoadOptions options;
  options.dialect = Dialect::edifice_mamba;
  const std::uint64_t by_mean = load(silent, options)->fingerprint;
  options.input_dt = InputDt::per_channel;
  CHECK(load(silent, options)->fingerprint != by_mean);
}

TEST_CASE("other architectures are refused, whatever their tensors are called", "[edifice]") {
  for (const char* arch : {"gated_ssm", "mamba_nif", "gru"})
    refused(file_of(trunk(), spec(arch, {})), std::string("architecture is ") + arch);
  for (const char* backbone : {"mamba_nif", "gated_ssm", "lstm"}) {
    refused(file_of(whole_policy(), config(with(kPlay, "backbone", atom(backbone)))),
            std::string("backbone is ") + backbone);
  }
  refused(file_of(whole_policy(), config(with(kPlay, "temporal", atom("false")))), "temporal: false");
  std::vector<Tensor> learned = whole_policy();
  learned.push_back({"action_emb_mamba_1", "kernel", {4, 4}});
  refused(file_of(learned, config(kPlay)), "action_emb_mamba_1.kernel");
}

TEST_CASE("missing, spare, misshapen and non-finite tensors are named", "[edifice]") {
  const std::vector<Tensor> sound = whole_policy();
  for (std::size_t i = 0; i < sound.size(); ++i) {
    const std::string name = sound[i].layer + "." + sound[i].name;
    std::vector<Tensor> tensors = sound;
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
    refused(file_of(tensors, config(kPlay)), "\"" + name + "\"");
    refused(file_of(sound, config(kPlay), name), "\"" + name + "\" is not finite");
    tensors = sound;
    tensors[i].shape.push_back(1);
    refused(file_of(tensors, config(kPlay)), "\"" + name + "\"");
  }
  std::vector<Tensor> spare = sound;
  spare.push_back({"value_hidden", "kernel", {4, 4}});
  refused(file_of(spare, config(kPlay)), "\"value_hidden.kernel\" of shape {4, 4} is not part");
  spare = sound;
  spare.push_back({"mamba_block_3_norm", "gamma", {4}});
  refused(file_of(spare, config(kPlay)), "mamba_block_3_norm");
}

TEST_CASE("build options that disagree with the shapes are named", "[edifice]") {
  for (const char* name : {"embed_size", "hidden_size", "state_size", "num_layers", "conv_size",
                           "expand_factor", "axis_buckets", "shoulder_buckets"}) {
    Options options = kPlay;
    options.push_back({name, integer(99)});
    refused(file_of(whole_policy(), config(options)), std::string("the file's ") + name + " is 99");
  }
  refused(file_of(trunk(), spec("mamba", {{"window_size", atom("many")}})), "window_size is \"many\"");
}

}  // namespace exphil::core
