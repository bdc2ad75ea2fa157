// Mamba-2, Mamba-3 and gated DeltaNet policies: the oracle against what was recorded, its gradient against
// differences, and the errors of bad files, which name the tensor.
#include <cmath>
#include <limits>
#include <numeric>

#include "core/policy/gradient_reference.hpp"
#include "core/policy/reference.hpp"
#include "core/policy/rounding.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/gated_policy.hpp"
#include "support/mamba3_policy.hpp"
#include "support/named_tensors.hpp"
#include "support/numbers.hpp"
#include "support/policy_grad_case.hpp"
#include "support/shared_data.hpp"

namespace exphil {

namespace {

using Doubles = std::vector<double>;

// The files were computed with A, the epsilon of the norms and the bounds of dt as doubles, which are f32
// here.
constexpr double kRounded = 1e-6;

std::vector<test::SafetensorsWriter> files() {
  test::Mamba2Spec biased, before;
  biased.biases = true, biased.mlp = 3;
  before.groups = 2, before.norm_before_gate = before.skip_of_value = true;
  test::DeltanetSpec plain;
  plain.projects = false;
  test::Mamba3Spec ranks;
  ranks.mimo = ranks.norm = true, ranks.ranks = 2;
  return {test::mamba2_file(biased),  test::mamba2_file(before), test::deltanet_file({}),
          test::deltanet_file(plain), test::mamba3_file({}),     test::mamba3_file(ranks)};
}

// The oracle's gradient of these policies.
bool takes_minutes(const std::string& name) {
  return name == "mamba2_base" || name == "mamba3_siso" || name == "mamba3_mimo";
}

test::CaughtError error_of(const test::SafetensorsWriter& file) {
  return test::error_of([&] { test::load_policy(file); });
}

}  // namespace

TEST_CASE("the oracle gives the recorded answers, windows and states of Mamba-2 and Mamba-3",
          "[policy_reference][heads][mamba2][mamba3]") {
  if (!test::have_mamba23()) return;
  for (const test::RecordedMixer& set : test::recorded_mixers()) {
    INFO(set.name);
    const auto weights = test::load_mixer(set.name);
    const core::PolicyConfig& c = weights->config;
    CHECK(c.trunk == set.name.substr(0, 6));
    const std::string golden = test::mixer_path(set.name, "golden.safetensors");
    const std::vector<float> obs = test::read_f32(golden, "obs");
    const Doubles expected = test::read_f64(golden, "logits"),
                  windows = test::read_f64(golden, "window_logits");
    core::PolicyReferenceState state(c);
    Doubles outs(expected.size());
    for (std::size_t t = 0; t * static_cast<std::size_t>(c.d_output) < outs.size(); ++t) {
      core::policy_reference_step(*weights, state, obs.data() + t * static_cast<std::size_t>(c.d_input),
                                  outs.data() + t * static_cast<std::size_t>(c.d_output));
    }
    CHECK(test::relative_error(outs, expected) < kRounded);
    CHECK(test::mixer_state_error(set.name, c, state.values) < kRounded);
    const auto ends = test::read_s32(golden, "end_frame_index");
    for (std::size_t i = 0; i < ends.size(); ++i) {
      Doubles window(static_cast<std::size_t>(20 * c.d_output));
      core::policy_reference_window(*weights, obs.data() + (ends[i] - 19) * c.d_input, 20, window.data());
      CHECK(test::relative_error(window.data() + 19 * c.d_output,
                                 windows.data() + i * static_cast<std::size_t>(c.d_output),
                                 static_cast<std::size_t>(c.d_output)) < kRounded);
    }
  }
}

TEST_CASE("the oracle gives the recorded gradients of Mamba-2 and Mamba-3",
          "[policy_reference][heads][mamba2][mamba3]") {
  if (!test::have_mamba23()) return;
  for (const test::RecordedMixer& set : test::recorded_mixers()) {
    if (!set.gradients || takes_minutes(set.name)) continue;
    INFO(set.name);
    const auto weights = test::load_mixer(set.name);
    const std::string file = test::mixer_path(set.name, "grad.safetensors");
    const std::vector<float> obs = test::read_f32(file, "obs"), g = test::read_f32(file, "g");
    const core::PolicySequences sequences{3, 40, obs.data()};
    const Doubles d_outs(g.begin(), g.end());
    const auto result =
        core::policy_grad_reference(weights->config, weights->values, sequences, d_outs.data());
    CHECK(test::relative_error(result.frames, test::read_f64(file, "grad.obs")) < kRounded);
    for (const core::PolicyParameter& parameter : weights->parameters) {
      INFO(parameter.name);
      Doubles values(parameter.count());
      core::copy_parameter(parameter, result.weights, values.data());
      CHECK(test::relative_error(values, test::mixer_values(file, "grad." + parameter.name)) < kRounded);
    }
  }
}

TEST_CASE("the oracle gives the recorded answers of a gated DeltaNet", "[policy_reference][heads][exphil]") {
  if (!test::have_trunks()) return;
  const test::RecordedTrunk set{"gated_deltanet_e32_h32_w20", 20};
  const std::vector<float> windows = set.io("windows");
  for (const bool heads : {true, false}) {
    const auto weights = set.load(heads ? "policy.bin" : "trunk.nx");
    const core::PolicyConfig& c = weights->config;
    CHECK(c.trunk == "gated_deltanet");
    Doubles last;
    for (std::int64_t i = 0; i < 8; ++i) {
      Doubles outs(static_cast<std::size_t>(set.seq * c.d_output));
      core::policy_reference_window(*weights, windows.data() + i * set.seq * c.d_input, set.seq, outs.data());
      last.insert(last.end(), outs.end() - c.d_output, outs.end());
    }
    CHECK(test::relative_error(last, set.io(heads ? "logits_batch1" : "trunk_batch1")) < 3e-6);
  }
}

TEST_CASE("the oracle's gradient with a matrix state is that of differences", "[policy_reference][heads]") {
  for (const test::NamedPolicy& policy : test::small_matrix_policies()) {
    INFO(policy.name);
    const core::PolicyWeights& weights = *policy.weights;
    const auto c = test::policy_grad_case(weights.config, 1, 5, true);
    core::PolicyValues<double> values;
    for (const std::vector<float>& each : weights.values) values.emplace_back(each.begin(), each.end());
    core::derive(weights.network(), &values);
    const auto result = core::policy_grad_reference(weights.config, values, c.sequences(), c.d_outs.data());
    for (const core::PolicyParameter& parameter : weights.parameters) {
      const auto id = static_cast<std::size_t>(parameter.weight);
      double& value = values[id][parameter.place(parameter.count() / 2)];
      const double given = value, step = 1e-5;
      const auto loss = [&](double by) {
        value = given + by;
        core::derive(weights.network(), &values);
        const auto outs = core::policy_grad_reference(weights.config, values, c.sequences(), nullptr).outs;
        return std::inner_product(outs.begin(), outs.end(), c.d_outs.begin(), 0.0);
      };
      const double found = (loss(step) - loss(-step)) / (2 * step);
      loss(0);
      INFO(parameter.name);
      const double expected = result.weights[id][parameter.place(parameter.count() / 2)];
      CHECK(std::abs(found - expected) <= 1e-5 * std::max(1.0, std::abs(expected)));
    }
  }
}

// The weight of a norm goes into the matrix behind it only where that matrix has its columns alone.
TEST_CASE("a policy with a matrix state answers in bf16 nearly as in f32", "[heads][precision]") {
  for (const test::PolicyForm& form : test::head_forms(8, 6)) {
    INFO(form.name);
    const core::PolicyWeights& exact = *form.weights;
    const core::PolicyWeights rounded = core::rounded_weights(exact, core::Precision::bf16);
    const auto c = test::policy_grad_case(exact.config, 1, 9, false);
    Doubles outs(static_cast<std::size_t>(9 * exact.config.d_output)), near = outs;
    core::policy_reference_window(exact, c.frames.data(), 9, outs.data());
    core::policy_reference_window(rounded, c.frames.data(), 9, near.data());
    CHECK(test::relative_error(near, outs) < 0.03);
  }
}

TEST_CASE("a missing, misshapen or unknown tensor of a policy with a matrix state is named", "[heads]") {
  for (const test::SafetensorsWriter& sound : files()) {
    test::check_tensors_are_named(sound, [](const auto& file) { return error_of(file); });
    for (const auto& [name, tensor] : sound.tensors) {
      INFO(name);
      test::SafetensorsWriter nan = sound;
      std::vector<float> values(tensor.data.size() / sizeof(float), 0.5f);
      values.back() = std::numeric_limits<float>::quiet_NaN();
      nan.add_f32(name, tensor.shape, values);
      CHECK(error_of(nan).says(name));
    }
    test::SafetensorsWriter spare = sound;
    spare.add_f32("backbone.layers.1.mixer.other", {1}, {1.0f});
    CHECK(error_of(spare).says("backbone.layers.1.mixer.other"));
  }
}

TEST_CASE("heads that do not divide a gated DeltaNet's units are refused, and an option of another trunk",
          "[heads]") {
  test::SafetensorsWriter file = test::deltanet_file({});
  file.metadata["exphil_native.num_heads"] = "4";
  CHECK(error_of(file).says("4 heads do not divide the 6 units of a layer"));
  file.metadata.erase("exphil_native.num_heads");
  const test::CaughtError by_default = error_of(file);
  CHECK(by_default.kind == core::ErrorKind::invalid_argument);
  CHECK(by_default.says("pass num_heads:"));
  core::PolicyLoadOptions options;
  options.trunk = {{"num_heads", std::int64_t{3}}};
  CHECK(test::load_policy(file, options)->network().layers.size() == 2);
  options.trunk = {{"dialect", std::string("edifice_mamba")}};
  CHECK(test::error_of([&] { test::load_policy(file, options); }).says(":dialect is not an option"));
}

TEST_CASE("a gated DeltaNet without its short convolution is refused by the option's name", "[heads]") {
  const std::string words = "gated_deltanet with use_short_conv: false, which is not read";
  test::SafetensorsWriter file = test::deltanet_file({});
  file.metadata["exphil_native.use_short_conv"] = "false";
  CHECK(error_of(file).says(words + ": its build options say so"));
  file.metadata["exphil_native.use_short_conv"] = "true";
  CHECK_NOTHROW(test::load_policy(file));
  file.metadata.erase("exphil_native.use_short_conv");
  for (auto at = file.tensors.begin(); at != file.tensors.end();) {
    at = at->first.find("_short_conv.") == std::string::npos ? std::next(at) : file.tensors.erase(at);
  }
  CHECK(error_of(file).says(words));
  CHECK(error_of(file).says("gated_delta_net_1_short_conv.kernel"));
  CHECK(error_of(file).kind == core::ErrorKind::invalid_checkpoint);
}

TEST_CASE("a tensor of an MLP is refused by what it belongs to", "[heads][mamba2][mamba3]") {
  for (test::SafetensorsWriter file : {test::mamba2_file({}), test::mamba3_file({})}) {
    file.add_f32("backbone.layers.0.mlp.fc1.weight", {1}, {1.0f});
    CHECK(error_of(file).says("belongs to an MLP between the mixers"));
  }
}

}  // namespace exphil
