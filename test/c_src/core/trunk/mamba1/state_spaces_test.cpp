// How load_weights handles files with the names of state-spaces/mamba.
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "core/trunk/load.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/mamba.hpp"
#include "support/melee.hpp"
#include "support/policy.hpp"

namespace exphil::core {

namespace {

using test::CaughtError;
using test::load_policy;
using test::policy_file;

using test::SafetensorsWriter;

CaughtError load_error(const SafetensorsWriter& file, const PolicyLoadOptions& options = {}) {
  return test::error_of([&] { load_policy(file, options); });
}

std::vector<float> floats(const test::Bytes& bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

TEST_CASE("every dimension is inferred", "[mamba_config]") {
  test::PolicySpec spec;
  spec.d_conv = GENERATE(1, 4);
  spec.n_layer = GENERATE(1, 3, 12);
  spec.projection_bias = GENERATE(false, true);
  spec.conv_bias = GENERATE(false, true);
  spec.prefix = GENERATE(std::string("backbone."), std::string(""));
  const SafetensorsWriter file = policy_file(spec);
  const auto weights = load_policy(file);
  const mamba1::Config c = test::mamba_config(weights->config);
  CHECK(c.d_input == 5);
  CHECK(c.d_output == 3);
  CHECK(c.d_model == 6);
  CHECK(c.d_inner == 12);
  CHECK(c.d_state == 4);
  CHECK(c.dt_rank == 2);
  CHECK(c.d_conv == spec.d_conv);
  CHECK(c.n_layer == spec.n_layer);
  CHECK(c.norm_epsilon == 1e-5f);
  CHECK(weights->config.n_layer() == spec.n_layer);
  const test::MambaLayer last = test::mamba_weights(*weights).layers.back();
  const std::string mixer = spec.prefix + "layers." + std::to_string(spec.n_layer - 1) + ".mixer.";
  CHECK(last.in_proj == floats(file.tensors.at(mixer + "in_proj.weight").data));
  CHECK(last.in_proj_bias.size() == (spec.projection_bias ? 24u : 0u));
  CHECK(last.out_proj_bias.size() == (spec.projection_bias ? 6u : 0u));
  CHECK(last.conv_bias.size() == (spec.conv_bias ? 12u : 0u));
  const float a_log = floats(file.tensors.at(mixer + "A_log").data)[7];
  const WeightId a = test::form_of(weights->config).ids.layers.back().a;
  CHECK(values_of(weights->values, a)[7] == static_cast<float>(-std::exp(static_cast<double>(a_log))));
}

TEST_CASE("the recorded policy loads", "[mamba_config][melee]") {
  if (!test::have_melee()) return;
  const auto weights = test::melee_policy();
  const mamba1::Config c = test::mamba_config(weights->config);
  CHECK(c.d_input == 287);
  CHECK(c.d_output == 64);
  CHECK(c.d_model == 256);
  CHECK(c.d_inner == 512);
  CHECK(c.n_layer == 2);
  CHECK(c.d_state == 16);
  CHECK(c.d_conv == 4);
  CHECK(c.dt_rank == 16);
  CHECK(weights->config.state_floats() == 2 * 512 * (16 + 3));
}

TEST_CASE("each missing tensor is named", "[mamba_config]") {
  test::PolicySpec spec;
  spec.projection_bias = true;
  const SafetensorsWriter sound = policy_file(spec);
  for (const auto& item : sound.tensors) {
    SafetensorsWriter file = sound;
    file.tensors.erase(item.first);
    const CaughtError error = load_error(file);
    INFO(item.first << " says: " << error.message);
    CHECK(error.kind == ErrorKind::invalid_checkpoint);
    CHECK(error.says("\"" + item.first + "\""));
  }
}

TEST_CASE("a bias that only one layer has is an error", "[mamba_config]") {
  test::PolicySpec spec;
  spec.conv_bias = false;
  SafetensorsWriter file = policy_file(spec);
  file.add_f32("backbone.layers.1.mixer.conv1d.bias", {12}, std::vector<float>(12));
  CHECK(load_error(file).says("\"backbone.layers.0.mixer.conv1d.bias\" is missing"));
  file = policy_file({});
  file.add_f32("backbone.layers.0.mixer.in_proj.bias", {24}, std::vector<float>(24));
  CHECK(load_error(file).says("\"backbone.layers.0.mixer.out_proj.bias\" is missing"));
}

TEST_CASE("each misshapen tensor is named", "[mamba_config]") {
  const SafetensorsWriter sound = policy_file({});
  // The order of inference decides which tensor of a disagreeing pair is named; these define a dimension.
  const std::set<std::string> defining = {"input_proj.weight",
                                          "head.weight",
                                          "backbone.layers.0.mixer.in_proj.weight",
                                          "backbone.layers.0.mixer.conv1d.weight",
                                          "backbone.layers.0.mixer.A_log",
                                          "backbone.layers.0.mixer.dt_proj.weight"};
  for (const auto& item : sound.tensors) {
    for (std::size_t axis = 0; axis < item.second.shape.size(); ++axis) {
      SafetensorsWriter file = sound;
      if (item.first == "input_proj.weight" && axis == 1) continue;  // d_input: no other tensor depends on it
      std::vector<std::int64_t> shape = item.second.shape;
      shape[axis] += 1;
      std::size_t count = 1;
      for (std::int64_t dim : shape) count *= static_cast<std::size_t>(dim);
      file.add_f32(item.first, shape, std::vector<float>(count, 0.5f));
      const CaughtError error = load_error(file);
      INFO(item.first << " axis " << axis << " says: " << error.message);
      CHECK(error.kind == ErrorKind::invalid_checkpoint);
      if (defining.count(item.first) == 0) CHECK(error.says("\"" + item.first + "\""));
    }
    SafetensorsWriter file = sound;
    std::vector<std::int64_t> shape = item.second.shape;
    shape.push_back(1);
    file.add_f32(item.first, shape, floats(item.second.data));
    CHECK(load_error(file).says("\"" + item.first + "\""));
    shape = item.second.shape;
    shape[0] = 0;
    file.add_f32(item.first, shape, {});
    CHECK(load_error(file).kind == ErrorKind::invalid_checkpoint);
  }
}

TEST_CASE("unexpected tensors and gaps between layers are named", "[mamba_config]") {
  SafetensorsWriter file = policy_file({});
  file.add_f32("backbone.embedding.weight", {2, 6}, std::vector<float>(12));
  CHECK(load_error(file).says("\"backbone.embedding.weight\" of shape {2, 6} is not part"));
  file = policy_file({});
  file.add_f32("backbone.layers.0.mixer.x_proj.bias", {10}, std::vector<float>(10));
  CHECK(load_error(file).says("x_proj.bias"));
  file = policy_file({});
  file.add_f32("backbone.layers.3.norm.weight", {6}, std::vector<float>(6));
  CHECK(load_error(file).says("\"backbone.layers.2.norm.weight\" is missing"));
  file = policy_file({});
  file.add_f32("backbone.layers.extra.norm.weight", {6}, std::vector<float>(6));
  CHECK(load_error(file).says("\"backbone.layers.extra.norm.weight\""));
  CHECK(load_error(SafetensorsWriter{}).says("\"input_proj.weight\" is missing"));
}

TEST_CASE("half checkpoints are widened, other dtypes refused", "[mamba_config]") {
  SafetensorsWriter file = policy_file({});
  const std::vector<float> head = floats(file.tensors.at("head.weight").data);
  file.add_bf16("head.weight", {3, 6}, head);
  const auto weights = load_policy(file);
  CHECK(test::mamba_weights(*weights).head[4] == Approx(head[4]).epsilon(0.004));
  file.tensors["head.weight"] = {"F64", {3, 6}, test::Bytes(18 * 8)};
  CHECK(load_error(file).says("\"head.weight\" must be F32, F16 or BF16; got f64"));
  file.tensors["head.weight"] = {"I32", {3, 6}, test::Bytes(18 * 4)};
  CHECK(load_error(file).says("\"head.weight\""));
  // Odd bytes before a tensor leave it unaligned.
  file = policy_file({});
  file.add_bf16("a", {1}, {0});
  CHECK(load_error(file).says("\"a\" of shape {1} is not part"));
}

TEST_CASE("weights that are not finite are refused, unless the option allows them", "[mamba_config]") {
  const SafetensorsWriter sound = policy_file({});
  for (const auto& item : sound.tensors) {
    for (const float poison : {std::nanf(""), HUGE_VALF}) {
      SafetensorsWriter file = sound;
      std::vector<float> values = floats(item.second.data);
      values.back() = poison;
      file.add_f32(item.first, item.second.shape, values);
      const CaughtError error = load_error(file);
      CHECK(error.kind == ErrorKind::invalid_checkpoint);
      CHECK(error.says("\"" + item.first + "\" is not finite"));
      PolicyLoadOptions unchecked;
      unchecked.check_finite = false;
      CHECK_FALSE(load_error(file, unchecked).thrown);
    }
  }
  SafetensorsWriter file = sound;
  file.add_f32("backbone.layers.0.mixer.A_log", {12, 4}, std::vector<float>(48, 100.0f));
  CHECK(load_error(file).says("A = -exp(A_log)"));
}

TEST_CASE("a policy beyond a limit names it", "[mamba_config]") {
  test::PolicySpec spec;
  spec.d_state = 257;
  CHECK(load_error(policy_file(spec)).kind == ErrorKind::limit_exceeded);
  CHECK(load_error(policy_file(spec)).says("d_state is 257"));
  spec = {};
  spec.d_conv = mamba1::kMaxConvTaps + 1;
  CHECK(load_error(policy_file(spec)).says("d_conv is 17"));
  SafetensorsWriter file = policy_file({});
  file.add_f32("backbone.layers.0.mixer.in_proj.weight", {23, 6}, std::vector<float>(23 * 6));
  CHECK(load_error(file).says("23 rows, an odd number"));
}

// x_proj would have 64 MB by the shapes of others; the file has 100 KB.
TEST_CASE("sizes that multiply to much memory are refused before it is taken", "[mamba_config]") {
  constexpr std::int64_t kMany = 4096;
  SafetensorsWriter file = policy_file({});
  file.add_f32("input_proj.weight", {1, 1}, {1});
  file.add_f32("backbone.layers.0.mixer.in_proj.weight", {2 * kMany, 1}, std::vector<float>(2 * kMany));
  file.add_f32("backbone.layers.0.mixer.dt_proj.weight", {1, kMany}, std::vector<float>(kMany));
  const test::TemporaryFile path(file.bytes());
  test::Allocations allocations;
  CHECK(test::error_of([&] { load_weights(Checkpoint::open(path.path()), {}); }).kind ==
        ErrorKind::invalid_checkpoint);
  CHECK(allocations.peak() < 8 << 20);
}

TEST_CASE("norm_epsilon: the option, else the metadata, else 1e-5", "[mamba_config]") {
  SafetensorsWriter file = policy_file({});
  PolicyLoadOptions options;
  CHECK(test::mamba_config(load_policy(file)->config).norm_epsilon == 1e-5f);
  file.metadata["norm_epsilon"] = "1e-06";
  CHECK(test::mamba_config(load_policy(file)->config).norm_epsilon == 1e-6f);
  options.norm_epsilon = 1e-3;
  CHECK(test::mamba_config(load_policy(file, options)->config).norm_epsilon == 1e-3f);
  // f32 would turn 1e-50 into zero and 1e300 into infinity.
  for (const double value : {-1.0, 0.0, 1e-50, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    options.norm_epsilon = value;
    CHECK(load_error(file, options).argument == ":norm_epsilon");
  }
  for (const char* text :
       {"", "x", "1e-5x", " 1e-5", "nan", "-1", "inf", "0", "1e-50", "1e300", "1e-400", "1e400"}) {
    file.metadata["norm_epsilon"] = text;
    CHECK(load_error(file).says("norm_epsilon"));
  }
}

TEST_CASE("the fingerprint depends on every weight and the epsilon only", "[mamba_config]") {
  const SafetensorsWriter sound = policy_file({});
  const std::uint64_t fingerprint = load_policy(sound)->fingerprint;
  CHECK(load_policy(sound)->fingerprint == fingerprint);
  SafetensorsWriter file = sound;
  file.metadata["format"] = "pt";
  CHECK(load_policy(file)->fingerprint == fingerprint);
  file.metadata["norm_epsilon"] = "1e-06";
  CHECK(load_policy(file)->fingerprint != fingerprint);
  for (const auto& item : sound.tensors) {
    file = sound;
    file.tensors.at(item.first).data.back() ^= 0x80;  // a sign
    CHECK(load_policy(file)->fingerprint != fingerprint);
  }
}

}  // namespace exphil::core
