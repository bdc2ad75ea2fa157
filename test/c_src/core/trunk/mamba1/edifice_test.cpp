// How load_weights handles files with Edifice's names: dialects, options, and every refusal with its reason.
#include "core/trunk/load.hpp"
#include "support/catch.hpp"
#include "support/edifice_writer.hpp"
#include "support/errors.hpp"
#include "support/mamba.hpp"
#include "support/safetensors_writer.hpp"
#include "support/shared_data.hpp"

namespace exphil::core {

namespace {

using namespace test::erlang;

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
  CHECK(test::fact(c, "dialect") == "edifice_mamba");
  CHECK(c.window == 60);
  CHECK(test::fact(c, "dt") == "mean");
  CHECK(c.d_input == 3);
  CHECK(c.d_output == 4);
  CHECK(test::fact(c, "d_inner") == "8");
  CHECK(test::fact(c, "d_conv") == "3");
  CHECK(c.groups.empty());
  const test::LayerIds ids = test::form_of(c).ids.layers[0];
  CHECK(values_of(bare->values, ids.a)[1] == -2.0f);
  CHECK(ids.d == kNone);
  const auto ssd =
      load(file_of(trunk("mamba_ssd_block_1"),
                   spec("mamba_ssd", {{"window_size", integer(24)}, {"chunk_size", integer(16)}})));
  CHECK(test::fact(ssd->config, "chunk_size") == "16");
  CHECK_FALSE(core::decays_input(ssd->config.network, ssd->config.window));
  const auto policy = load(file_of(full_policy(), config(kPlay)));
  CHECK(policy->config.d_output == 81);
  CHECK(policy->config.groups.at(5).name == "shoulder");
  CHECK(policy->config.groups.at(5).first == 76);
  CHECK(policy->config.groups.at(0).binary);
  CHECK_FALSE(policy->config.groups.at(5).binary);
  for (const Text& same : {file_of(full_policy(), config(kPlay), "", 1), term_of(full_policy(), kPlay)}) {
    CHECK(load(same)->fingerprint == policy->fingerprint);
  }
  std::vector<Tensor> square = trunk();
  square.erase(square.begin(), square.begin() + 2);
  const auto without = load(file_of(square, spec("mamba", {})));
  CHECK(std::holds_alternative<Copy>(without->network().input.at(0)));
  CHECK(without->config.d_input == 4);
  CHECK(without->config.window == 0);
}

TEST_CASE("ExPhil's mamba_2 is mamba_ssd with chunks of 32, whatever its options say", "[edifice]") {
  std::vector<Tensor> tensors = full_policy();
  for (Tensor& tensor : tensors) {
    if (tensor.layer.rfind("mamba_block", 0) == 0) tensor.layer.replace(0, 5, "mamba_ssd");
  }
  Options options = with(kPlay, "backbone", atom("mamba_2"));
  options.push_back({"chunk_size", integer(16)}), options.push_back({"conv_size", integer(9)});
  const auto policy = load(file_of(tensors, config(options)));
  CHECK(test::fact(policy->config, "dialect") == "edifice_mamba_ssd");
  CHECK(test::fact(policy->config, "chunk_size") == "32");
  CHECK(core::decays_input(policy->config.network, policy->config.window));
}

TEST_CASE("options complete the file, and a contradiction is an error", "[edifice]") {
  const Text silent = file_of(trunk(), "");
  refused(silent, "mamba_block_1_..., are those of mamba and of others: pass dialect: :edifice_mamba if");
  refused(file_of(trunk("mamba_ssd_block_1"), ""), "pass dialect: :edifice_mamba_ssd if it is that");
  PolicyLoadOptions options;
  options.trunk = {{"dialect", "edifice_mamba"}, {"dt", "per_channel"}};
  options.window = 7;
  CHECK(load(silent, options)->config.window == 7);
  CHECK(test::fact(load(silent, options)->config, "dt") == "per_channel");
  const Text said = file_of(trunk(), spec("mamba", {{"window_size", integer(60)}}));
  refused(said, ":window is 7, but the file says 60", options);
  options.window.reset(), options.trunk = {{"dialect", "edifice_mamba_ssd"}, {"dt", "per_channel"}};
  refused(said, ":dialect is :edifice_mamba_ssd, but the file says :edifice_mamba", options);
  options.trunk = {{"dialect", "state_spaces"}, {"dt", "per_channel"}};
  refused(silent, "the tensors have Edifice's names", options);
  PolicyLoadOptions chunk;
  chunk.trunk = {{"chunk_size", std::int64_t{8}}};
  refused(said, "applies to :edifice_mamba_ssd only", chunk);
  PolicyLoadOptions channel;
  channel.trunk = {{"dt", "per_channel"}};
  refused(file_of(trunk("mamba_ssd_block_1"), spec("mamba_ssd", {})), "always", channel);
}

TEST_CASE("a state is refused by a policy with other maths", "[edifice]") {
  const Text silent = file_of(trunk(), "");
  PolicyLoadOptions options;
  options.trunk = {{"dialect", "edifice_mamba"}};
  const std::uint64_t by_mean = load(silent, options)->fingerprint;
  options.trunk.emplace_back("dt", "per_channel");
  CHECK(load(silent, options)->fingerprint != by_mean);
}

TEST_CASE("other architectures are refused, whatever their tensors are called", "[edifice]") {
  for (const char* arch : {"gated_ssm", "mamba_nif", "attention", "xlstm", "rwkv", "liquid"}) {
    const std::string end = std::string(arch) + "\", which is not read; read are mamba, mamba_";
    refused(file_of(trunk(), spec(arch, {})),
            "architecture \"" + end + "ssd, gru, lstm, min_gru, min_lstm and gated_deltanet");
    const Options play = with(kPlay, "backbone", atom(arch));
    for (const Text& policy : {file_of(full_policy(), config(play)), term_of(full_policy(), play)}) {
      refused(policy, "backbone \"" + end + "2, mamba_ssd, gru, lstm, min_gru, min_lstm and gated_deltanet");
    }
  }
  refused(file_of(full_policy(), config(with(kPlay, "temporal", atom("false")))), "temporal: false");
  std::vector<Tensor> learned = full_policy();
  learned.push_back({"action_emb_mamba_1", "kernel", {4, 4}});
  refused(file_of(learned, config(kPlay)), "action_emb_mamba_1.kernel");
}

TEST_CASE("without build options the names show an architecture that is not read", "[edifice]") {
  PolicyLoadOptions options;
  options.trunk = {{"dialect", "edifice_mamba"}};  // is no help
  const std::pair<const char*, const char*> known[] = {
      {"delta_net_1_norm", "deltanet"}, {"layer_1_attn_qkv", "attention"},
      {"ltc_layer_1_norm", "liquid"},   {"ttt_1_norm", "ttt"},
      {"rwkv_block_1_norm", "rwkv"},    {"xlstm_block_1_ff", "xlstm"},
      {"retnet_block_1_ffn", "retnet"}};
  for (const auto& [layer, architecture] : known) {
    const std::string words =
        std::string("the architecture ") + architecture +
        ", as the names of its tensors show, which is not read; read are mamba, mamba_ssd, "
        "gru, lstm, min_gru, min_lstm and gated_deltanet";
    // Edifice's networks begin with a projection, whose name is before that of most layers.
    const std::vector<Tensor> tensors = {{"input_projection", "kernel", {3, 4}}, {layer, "gamma", {4}}};
    refused(file_of(tensors, ""), words);
    refused(file_of(tensors, ""), words, options);
    test::SafetensorsWriter writer;
    writer.add_f32("input_projection.kernel", {1, 1}, {1});
    writer.add_f32(std::string(layer) + ".gamma", {1}, {1});
    const test::TemporaryFile file(writer.bytes());
    CHECK(test::error_of([&] { load_weights(Checkpoint::open(file.path()), {}); }).says(words));
  }
  for (const char* const layer : {"rwkv_1_norm", "A_block_1_norm", "_block_1norm"}) {
    refused(file_of({{layer, "gamma", {4}}}, ""), "no tensor of an architecture that is read");
  }
}

// A log shows each message as one line.
TEST_CASE("text of a file in a message is quoted, escaped and cut", "[edifice]") {
  const std::string forged = "x\n\x1b[31m2026-11-22 [error] forged\r\n", most(100000, 'y');
  for (const std::string& text : {forged, most}) {
    std::vector<Text> files = {file_of(full_policy(), config(with(kPlay, "backbone", binary(text)))),
                               term_of(full_policy(), with(kPlay, "backbone", binary(text))),
                               file_of(full_policy(), config(with(kPlay, "temporal", binary(text))))};
    for (const char* count : {"window_size", "hidden_size", "num_layers", "axis_buckets"}) {
      files.push_back(file_of(full_policy(), config(with(kPlay, count, binary(text)))));
    }
    if (text == forged) files.push_back(file_of(trunk(), spec(forged.c_str(), {})));
    for (const Text& bytes : files) {
      const test::CaughtError error = test::error_of([&] { load(bytes); });
      INFO(error.message);
      CHECK(error.thrown);
      CHECK(error.message.find_first_of("\n\r\x1b") == std::string::npos);
      CHECK(error.message.size() < 600);
    }
  }
}

TEST_CASE("missing, unexpected, misshapen and non-finite tensors are named", "[edifice]") {
  const std::vector<Tensor> sound = full_policy();
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
    refused(file_of(full_policy(), config(options)), std::string("the file's ") + name + " is 99");
  }
  refused(file_of(trunk(), spec("mamba", {{"window_size", atom("many")}})), "window_size is \"many\"");
}

TEST_CASE("a window that is no count is an error that names it, not a policy without one", "[edifice]") {
  // 2^63, as an integer of eight bytes.
  const Text beyond = tag(110) + tag(8) + tag(0) + Text(7, '\0') + tag(128);
  const std::vector<std::pair<Text, std::string>> windows = {
      {beyond, "window_size is an integer beyond 64 bits"},
      {list({integer(20)}), "window_size is a list"},
      {tuple({integer(20)}), "window_size is a tuple"},
      {map({}), "window_size is a map"},
      {integer(-1), "window_size is \"-1\""},
      {binary("9223372036854775808"), "window_size is \"9223372036854775808\", not a count below 2^63"}};
  for (const auto& [window, words] : windows) {
    refused(file_of(trunk(), spec("mamba", {{"window_size", window}})), words);
    refused(file_of(full_policy(), config(with(kPlay, "window_size", window))), words);
    refused(term_of(full_policy(), with(kPlay, "window_size", window)), words);
  }
  // An option that nothing depends on may be anything.
  CHECK(load(file_of(trunk(), spec("mamba", {{"window_size", integer(6)}, {"sizes", list({integer(1)})}})))
            ->config.window == 6);
}

}  // namespace exphil::core
