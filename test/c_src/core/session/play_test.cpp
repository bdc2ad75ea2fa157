// Play: ExPhil's choices for its recorded random numbers, the random generator, and hysteresis.
#include "core/session/play.hpp"

#include <cmath>

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/exphil_data.hpp"

namespace exphil::core {

namespace {

const std::string kGolden = "exphil_policy/golden.safetensors";

std::vector<float> golden_f32(const char* name) {
  return test::read_f32(test::exphil_path(kGolden), name);
}

PolicyConfig controller() {
  PolicyConfig config;
  for (const char* name : {"buttons", "main_x", "main_y", "c_x", "c_y", "shoulder"}) {
    const std::string head = name;
    const std::int64_t count = head == "buttons" ? 8 : head == "shoulder" ? 5 : 17;
    config.groups.push_back({head, config.d_output, count});
    config.d_output += count;
  }
  return config;
}

// How many of 16 actions differ from the expected buttons and bins.
int differences(const PlayRules& rules, const float* uniforms, const char* buttons, const char* bins) {
  const PolicyConfig config = controller();
  const std::vector<float> logits = golden_f32("logits_axon");
  const auto expected_buttons = test::read_u8(test::exphil_path(kGolden), buttons);
  const auto expected_bins = test::read_s32(test::exphil_path(kGolden), bins);
  int different = 0;
  for (std::size_t row = 0; row < 16; ++row) {
    const Action action = choose_action(config, rules, {}, logits.data() + 81 * row, uniforms + 81 * row);
    for (std::size_t i = 0; i < 8; ++i)
      different += action.buttons[i] != (expected_buttons[8 * row + i] != 0);
    for (std::size_t i = 0; i < 5; ++i) different += action.bins[i] != expected_bins[5 * row + i];
  }
  return different;
}

}  // namespace

TEST_CASE("choices from ExPhil's logits and random numbers equal ExPhil's", "[play][exphil]") {
  if (!test::have_exphil()) return;
  const std::vector<float> uniform = golden_f32("uniform");
  PlayRules rules;
  CHECK(differences(rules, uniform.data(), "sampled_buttons", "sampled_bins_t1") == 0);
  rules.temperature = 0.4;
  CHECK(differences(rules, uniform.data(), "sampled_buttons", "sampled_bins_t0p4") == 0);
  rules.deterministic = true;
  CHECK(differences(rules, uniform.data(), "det_buttons", "det_bins") == 0);
  PlayRules mixed;
  mixed.deterministic_buttons = true;
  CHECK(differences(mixed, uniform.data(), "det_buttons", "sampled_bins_t1") == 0);
}

TEST_CASE("axes and confidence are ExPhil's", "[play][exphil]") {
  if (!test::have_exphil()) return;
  const std::vector<float> logits = golden_f32("logits_axon"), axes = golden_f32("det_axes");
  const auto confidence = test::read_f64(test::exphil_path(kGolden), "confidence_f64");
  PlayRules rules;
  rules.deterministic = true;
  for (std::size_t row = 0; row < 16; ++row) {
    const Action action = choose_action(controller(), rules, {}, logits.data() + 81 * row, nullptr);
    for (std::size_t i = 0; i < 5; ++i) {
      CHECK(action.axes[i] == static_cast<double>(axes[5 * row + i]));
      CHECK(std::abs(action.confidence[i] - confidence[5 * row + i]) < 1e-5);
    }
  }
}

TEST_CASE("hysteresis follows the buttons that were emitted", "[play][exphil]") {
  if (!test::have_exphil()) return;
  PlayRules rules;
  rules.deterministic = true;
  rules.hysteresis = {0.6, 0.4};
  const auto different = [&](const char* logits_name, const char* expected_name) {
    const std::vector<float> logits = golden_f32(logits_name);
    const auto expected = test::read_u8(test::exphil_path(kGolden), expected_name);
    PlayState state;
    int count = 0;
    for (std::size_t row = 0; row < expected.size() / 8; ++row) {
      const Action action = choose_action(controller(), rules, state, logits.data() + 81 * row, nullptr);
      advance(&state, action);
      for (std::size_t i = 0; i < 8; ++i) count += action.buttons[i] != (expected[8 * row + i] != 0);
    }
    CHECK(state.frame == expected.size() / 8);
    return count;
  };
  CHECK(different("logits_axon", "hysteresis_buttons_16") == 0);
  CHECK(different("stateful_logits", "hysteresis_buttons_600") == 0);
}

// The first known answers of Random123's kat_vectors for philox4x32 with 10 rounds: counter and key zero, and
// all ones.
TEST_CASE("random numbers are Philox 4x32-10 of seed and frame", "[play]") {
  float zero[5];
  draw(0, 0, 5, zero);
  CHECK(zero[0] == static_cast<float>(0x6627e8d5u >> 8) * 0x1p-24f);
  CHECK(zero[1] == static_cast<float>(0xe169c58du >> 8) * 0x1p-24f);
  CHECK(zero[2] == static_cast<float>(0xbc57ac4cu >> 8) * 0x1p-24f);
  CHECK(zero[3] == static_cast<float>(0x9b00dbd8u >> 8) * 0x1p-24f);
  std::vector<float> first(81), again(81), next(81), other(81);
  draw(7, 3, 81, first.data()), draw(7, 3, 81, again.data());
  draw(7, 4, 81, next.data()), draw(8, 3, 81, other.data());
  CHECK(first == again);
  CHECK(first != next);
  CHECK(first != other);
  double sum = 0;
  for (std::uint64_t frame = 0; frame < 1000; ++frame) {
    draw(1, frame, 81, first.data());
    for (const float u : first) {
      REQUIRE((u >= 0.0f && u < 1.0f));
      sum += u;
    }
  }
  CHECK(sum / 81000 == Approx(0.5).epsilon(0.01));
}

TEST_CASE("ties go to the lowest bin, and temperature does not affect buttons", "[play]") {
  std::vector<float> logits(81, 0.0f), uniforms(81, 0.25f);
  logits[0] = 2.0f;
  logits[8 + 5] = logits[8 + 9] = 1.0f;
  PlayRules rules;
  rules.deterministic = true;
  const Action action = choose_action(controller(), rules, {}, logits.data(), nullptr);
  CHECK(action.bins[0] == 5);
  CHECK(action.bins[1] == 0);
  CHECK(action.buttons[0]);
  CHECK_FALSE(action.buttons[1]);  // exactly one half is not pressed
  rules.deterministic = false;
  for (const double temperature : {0.01, 1.0, 100.0}) {
    rules.temperature = temperature;
    CHECK(choose_action(controller(), rules, {}, logits.data(), uniforms.data()).buttons[1]);  // 0.25 < 0.5
  }
}

TEST_CASE("near a temperature of zero the largest output is chosen, however small the temperature",
          "[play]") {
  // The largest and the second of each axis, close together, huge, tiny and negative.
  const std::vector<std::pair<float, float>> pairs = {
      {1.5f, 1.4999999f}, {3e38f, 2.9999e38f}, {3e-45f, 1e-45f}, {-1.0f, -1.0000001f}, {2.0f, 1.0f}};
  PlayRules rules;
  for (const double temperature : {1e-100, 1e-249, 1e-250, 1e-251, 1e-300, 1e-309, 5e-324}) {
    rules.temperature = temperature;
    for (const auto& [largest, second] : pairs) {
      std::vector<float> logits(81, -3.4e38f);
      for (std::int64_t axis = 0; axis < kAxes; ++axis) {
        const OutputGroup group = controller().groups[static_cast<std::size_t>(axis) + 1];
        logits[static_cast<std::size_t>(group.first)] = second;
        logits[static_cast<std::size_t>(group.first + group.count - 2)] = largest;
      }
      for (std::uint64_t frame = 0; frame < 20; ++frame) {
        PlayState state;
        state.frame = frame;
        const Action action = choose_action(controller(), rules, state, logits.data(), nullptr);
        for (std::size_t axis = 0; axis < kAxes; ++axis) {
          CHECK(action.bins[axis] == controller().groups[axis + 1].count - 2);
        }
      }
    }
  }
}

TEST_CASE("uniform numbers outside [0, 1) are refused", "[play]") {
  std::vector<float> uniforms(81, 0.0f);
  uniforms[80] = std::nextafter(1.0f, 0.0f);
  require_uniforms(uniforms.data(), 81, ":uniforms");
  for (const float bad : {1.0f, -1.0f, -1e-30f, std::nanf(""), INFINITY}) {
    uniforms[7] = bad;
    const auto error = test::error_of([&] { require_uniforms(uniforms.data(), 81, ":uniforms"); });
    CHECK(error.kind == ErrorKind::invalid_argument);
    CHECK(error.argument == ":uniforms");
    CHECK(error.says("number 7 is"));
  }
}

TEST_CASE("a controller with more outputs than can be drawn is refused before it plays", "[play]") {
  PolicyConfig config = controller();
  require_controller(config, "session");
  config.groups[1].count += 512 - config.d_output;
  config.d_output = 512;
  require_controller(config, "session");
  ++config.groups[1].count;
  ++config.d_output;
  const test::CaughtError error = test::error_of([&] { require_controller(config, "session"); });
  CHECK(error.kind == ErrorKind::limit_exceeded);
  CHECK(error.says("513 outputs; the limit is 512"));
}

TEST_CASE("a policy without ExPhil's heads has no controller", "[play]") {
  PolicyConfig config = controller();
  require_controller(config, "policy");
  config.groups[2].name = "other";
  CHECK(test::error_of([&] { require_controller(config, "policy"); }).kind == ErrorKind::unsupported);
  config.groups.clear();
  CHECK(test::error_of([&] { require_controller(config, "policy"); }).says("ExPhil's six heads"));
}

}  // namespace exphil::core
