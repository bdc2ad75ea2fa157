// Files of GRU, LSTM, minGRU and minLSTM policies: what is read of them, and the errors of bad ones, which
// name the tensor.
#include <cmath>
#include <limits>

#include "core/policy/reference.hpp"
#include "core/policy/rounding.hpp"
#include "core/trunk/load.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/gated_policy.hpp"
#include "support/named_tensors.hpp"
#include "support/numbers.hpp"
#include "support/precision_checks.hpp"

namespace exphil {

namespace {

std::vector<test::GatedSpec> layouts() {
  test::GatedSpec gru, fused, lstm, min_gru, min_lstm;
  gru.heads = true, gru.window = 30;
  fused.fused = true;
  lstm.architecture = "lstm", lstm.d_input = 9;
  min_gru.architecture = "min_gru", min_gru.projects = true;
  min_lstm.architecture = "min_lstm", min_lstm.d_input = min_lstm.units, min_lstm.heads = true;
  return {gru, fused, lstm, min_gru, min_lstm};
}

test::CaughtError error_of(const test::SafetensorsWriter& file) {
  return test::error_of([&] { test::load_policy(file); });
}

bool is_key(const test::SafetensorsWriter::Tensor& tensor) {
  return tensor.dtype == "U32";
}

}  // namespace

TEST_CASE("sizes of gated policies are those of their tensors", "[gated]") {
  for (const test::GatedSpec& spec : layouts()) {
    INFO(spec.architecture);
    const auto policy = test::make_gated(spec);
    const core::PolicyConfig& c = policy->config;
    CHECK(c.trunk == spec.architecture);
    CHECK(c.d_input == spec.d_input);
    CHECK(c.n_layer() == spec.n_layer);
    CHECK(c.window == spec.window);
    CHECK(c.state_floats() == spec.n_layer * spec.units * (spec.architecture == "lstm" ? 2 : 1));
    CHECK(c.groups.size() == (spec.heads ? 6 : 0));
    // Of ExPhil's heads the buttons alone are separate events.
    for (const core::OutputGroup& group : c.groups) CHECK(group.binary == (group.name == "buttons"));
    CHECK(c.d_output == (spec.heads ? 8 + 5 * 3 : spec.units));
  }
}

TEST_CASE("other numbers are those of a file with them, from tensors and from values", "[gated][policy]") {
  for (const test::GatedSpec& spec : layouts()) {
    INFO(spec.architecture);
    const auto policy = test::make_gated(spec);
    core::PolicyValues<float> values = policy->values;
    for (std::vector<float>& of : values) {
      for (float& value : of) value *= 0.5f;
    }
    std::vector<std::vector<float>> files;
    core::TensorMap tensors;
    for (const core::PolicyParameter& p : policy->parameters) {
      std::vector<float>& file = files.emplace_back(p.count());
      core::copy_parameter(p, values, file.data());
      tensors[p.name] = {core::Dtype::f32, p.shape, file.data(), p.count() * sizeof(float)};
    }
    const auto from_tensors = core::replace_weights(*policy, tensors);
    const auto from_values = core::replace_weights(*policy, values);
    CHECK(from_tensors->fingerprint != policy->fingerprint);
    CHECK(from_values->fingerprint == from_tensors->fingerprint);
    CHECK(from_tensors->values == values);
    CHECK(from_values->values == values);

    // Of several, the first one is named, by its element in the file.
    for (const std::size_t i : {std::size_t{0}, policy->parameters.size() - 1}) {
      const core::PolicyParameter& p = policy->parameters[i];
      const float infinite = std::numeric_limits<float>::infinity();
      files[i].back() = infinite;
      values[static_cast<std::size_t>(p.weight)][p.place(p.count() - 1)] = infinite;
    }
    const auto given = test::error_of([&] { core::replace_weights(*policy, tensors); });
    const auto trained = test::error_of([&] { core::replace_weights(*policy, values); });
    CHECK(given.message.find(policy->parameters[0].name) != std::string::npos);
    CHECK(trained.message == given.message);
  }
}

TEST_CASE("a missing, misshapen or unknown tensor of a gated policy is named", "[gated]") {
  for (const test::GatedSpec& spec : layouts()) {
    const test::SafetensorsWriter sound = test::gated_file(spec);
    INFO(spec.architecture);
    test::check_tensors_are_named(sound, [](const auto& file) { return error_of(file); });
    test::SafetensorsWriter spare = sound;
    spare.add_f32(spec.architecture + "_1_other", {1}, {1.0f});
    CHECK(error_of(spare).says(spec.architecture + "_1_other"));
  }
}

TEST_CASE("the random keys of dropout layers change nothing", "[gated]") {
  for (const test::GatedSpec& spec : layouts()) {
    INFO(spec.architecture);
    const test::SafetensorsWriter sound = test::gated_file(spec);
    const auto expected = test::load_policy(sound);
    const test::Bytes two(8), three(12);
    for (const std::string layer : {"recurrent_dropout_1", "dropout_1", "recurrent_dropout_12"}) {
      INFO(layer);
      test::SafetensorsWriter trained = sound;
      trained.tensors[layer + ".key"] = {"U32", {2}, two};
      const auto policy = test::load_policy(trained);
      CHECK(policy->fingerprint == expected->fingerprint);
      CHECK(policy->config.constants.size() == expected->config.constants.size());
      trained.tensors[layer + ".key"] = {"U32", {3}, three};
      CHECK(error_of(trained).says(layer + ".key"));
      trained = sound;
      trained.tensors[layer + ".kernel"] = {"U32", {2}, two};
      CHECK(error_of(trained).says(layer + ".kernel"));
    }
  }
}

TEST_CASE("a random key that is no U32, and weights that are, are named", "[gated]") {
  for (const test::GatedSpec& spec : layouts()) {
    const test::SafetensorsWriter sound = test::gated_file(spec);
    for (const auto& [name, tensor] : sound.tensors) {
      test::SafetensorsWriter other = sound;
      other.tensors[name].dtype = is_key(tensor) ? "F32" : "U32";
      const test::CaughtError error = error_of(other);
      INFO(name << ": " << error.message);
      CHECK(error.kind == core::ErrorKind::invalid_checkpoint);
      CHECK(error.says(name));
    }
  }
}

TEST_CASE("a value of a gated policy that is not finite is named", "[gated]") {
  for (const test::GatedSpec& spec : layouts()) {
    const test::SafetensorsWriter sound = test::gated_file(spec);
    for (const auto& [name, tensor] : sound.tensors) {
      if (is_key(tensor)) continue;
      test::SafetensorsWriter other = sound;
      std::vector<float> values(tensor.data.size() / sizeof(float), 0.5f);
      values.back() = std::numeric_limits<float>::quiet_NaN();
      other.add_f32(name, tensor.shape, values);
      const test::CaughtError error = error_of(other);
      INFO(name << ": " << error.message);
      CHECK(error.says(name));
    }
  }
}

TEST_CASE("another key is another policy, and another state to begin with", "[gated]") {
  test::GatedSpec spec;
  test::SafetensorsWriter file = test::gated_file(spec);
  const auto policy = test::load_policy(file);
  test::SafetensorsWriter::Tensor& key = file.tensors.at("gru_1_h_hidden_state.key");
  key.data[3] ^= 1;
  const auto other = test::load_policy(file);
  CHECK(other->fingerprint != policy->fingerprint);
  CHECK(other->network().states[0].initial != policy->network().states[0].initial);
  CHECK(other->network().states[1].initial == policy->network().states[1].initial);
}

// By the reference: other numbers, which answer nearly the same.
TEST_CASE("a gated policy in another precision answers nearly the same", "[gated][precision]") {
  for (const test::GatedSpec& spec : layouts()) {
    INFO(spec.architecture);
    const auto exact = test::make_gated(spec);
    constexpr std::int64_t kFrames = 12;
    const std::vector<float> frames =
        test::Random(9).vector(static_cast<std::size_t>(kFrames * spec.d_input), -1.0f, 1.0f);
    const auto outputs = [&](const core::PolicyWeights& weights) {
      std::vector<double> outs(static_cast<std::size_t>(kFrames * weights.config.d_output));
      core::policy_reference_window(weights, frames.data(), kFrames, outs.data());
      return outs;
    };
    const std::vector<double> expected = outputs(*exact);
    for (const core::Precision precision : test::kPrecisions) {
      INFO(core::precision_name(precision));
      const core::PolicyWeights rounded = core::rounded_weights(*exact, precision);
      const double error = test::relative_error(outputs(rounded), expected);
      CHECK((error > 0) == (precision != core::Precision::f32));
      CHECK(error < (precision == core::Precision::f16 ? 2e-3 : 2e-2));
      for (std::size_t id = 0; id < exact->network().states.size(); ++id) {
        CHECK(rounded.network().states[id].initial == exact->network().states[id].initial);
      }
    }
  }
}

}  // namespace exphil
