#include "core/session/play.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/philox.hpp"
#include "core/policy/exphil_heads.hpp"

namespace exphil::core {

namespace {

double sigmoid(double v) {
  return 1.0 / (1.0 + std::exp(-v));
}

// The lowest index of the largest value.
template <class Value>
std::int64_t argmax(std::int64_t count, const Value& value) {
  std::int64_t best = 0;
  double largest = value(0);
  for (std::int64_t i = 1; i < count; ++i) {
    const double next = value(i);
    if (next > largest) best = i, largest = next;
  }
  return best;
}

double largest_softmax(const float* logits, std::int64_t count) {
  const double top = *std::max_element(logits, logits + count);
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += std::exp(logits[i] - top);
  return 1.0 / sum;
}

std::array<double, 5> confidence(const PolicyConfig& config, const float* logits) {
  double buttons = 0, largest[kAxes];
  for (std::int64_t i = 0; i < kButtons; ++i) {
    buttons += std::abs(sigmoid(logits[i]) - 0.5) * 2 / static_cast<double>(kButtons);
  }
  for (int axis = 0; axis < kAxes; ++axis) {
    const OutputGroup& group = config.groups[static_cast<std::size_t>(axis) + 1];
    largest[axis] = largest_softmax(logits + group.first, group.count);
  }
  const double main = (largest[0] + largest[1]) / 2, c = (largest[2] + largest[3]) / 2, shoulder = largest[4];
  return {buttons, main, c, shoulder, 0.4 * buttons + 0.3 * main + 0.15 * c + 0.15 * shoulder};
}

bool pressed(const PlayRules& rules, bool held, float logit, float uniform) {
  const double p = sigmoid(logit);
  if (!rules.deterministic && !rules.deterministic_buttons) return uniform < p;
  const double threshold =
      rules.hysteresis ? (held ? rules.hysteresis->second : rules.hysteresis->first) : 0.5;
  return p > threshold;
}

}  // namespace

void require_controller(const PolicyConfig& config, const char* argument) {
  bool sound = config.groups.size() == std::size(kExphilHeads);
  for (std::size_t i = 0; sound && i < config.groups.size(); ++i) {
    const std::int64_t count = config.groups[i].count;
    sound = config.groups[i].name == kExphilHeads[i] && (i == 0 ? count == kButtons : count > 1);
  }
  if (!sound) {
    fail(ErrorKind::unsupported, argument,
         "this policy has no controller to play: its outputs are not ExPhil's six heads ",
         "(buttons, main_x, main_y, c_x, c_y, shoulder)");
  }
  if (config.d_output > kMostOutputs) {
    fail(ErrorKind::limit_exceeded, argument, "this policy's controller has ", config.d_output,
         " outputs; the limit is ", kMostOutputs);
  }
}

void require_uniforms(const float* uniforms, std::int64_t count, const char* argument) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (uniforms[i] >= 0 && uniforms[i] < 1) continue;
    fail(ErrorKind::invalid_argument, argument, argument, " must be from 0 to below 1; number ", i, " is ",
         uniforms[i]);
  }
}

void draw(std::uint64_t seed, std::uint64_t frame, std::int64_t count, float* uniforms) {
  const auto low = static_cast<std::uint32_t>(frame), high = static_cast<std::uint32_t>(frame >> 32);
  for (std::int64_t i = 0; i < count; i += 4) {
    const auto words = philox({static_cast<std::uint32_t>(i / 4), 0, low, high}, seed);
    for (std::int64_t k = i; k < std::min(i + 4, count); ++k) {
      uniforms[k] = uniform_of(words[static_cast<std::size_t>(k - i)]);
    }
  }
}

void prepare_noise(const PolicyConfig& config, const PlayRules& rules, std::uint64_t frame,
                   const float* uniforms, Noise* noise) {
  if (rules.deterministic) return;
  float drawn[kMostOutputs];
  if (uniforms == nullptr) {
    draw(rules.seed, frame, config.d_output, drawn);
    uniforms = drawn;
  }
  std::copy_n(uniforms, kButtons, noise->uniforms.begin());
  for (std::int64_t i = kButtons; i < config.d_output; ++i) {
    noise->log_logs[static_cast<std::size_t>(i)] =
        std::log(-std::log(static_cast<double>(uniforms[i]) + 1e-10));
  }
}

Action choose_action(const PolicyConfig& config, const PlayRules& rules, const PlayState& state,
                     const float* logits, const Noise& noise) {
  // Divided by less, an output could become infinite, and the largest one would no longer be known. Here two
  // outputs that differ are so far apart already that no random number matters.
  const double temperature = std::max(rules.temperature, 1e-250);
  Action action;
  for (std::int64_t i = 0; i < kButtons; ++i) {
    const auto at = static_cast<std::size_t>(i);
    action.buttons[at] = pressed(rules, state.held[at], logits[i], noise.uniforms[at]);
  }
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    const OutputGroup& group = config.groups[axis + 1];
    const float* own = logits + group.first;
    const double* gumbel = noise.log_logs.data() + group.first;
    action.bins[axis] = argmax(group.count, [&](std::int64_t i) {
      return rules.deterministic ? static_cast<double>(own[i]) : own[i] / temperature - gumbel[i];
    });
    action.axes[axis] = static_cast<double>(action.bins[axis]) / static_cast<double>(group.count - 1);
  }
  action.confidence = confidence(config, logits);
  return action;
}

Action choose_action(const PolicyConfig& config, const PlayRules& rules, const PlayState& state,
                     const float* logits, const float* uniforms) {
  Noise noise;
  prepare_noise(config, rules, state.frame, uniforms, &noise);
  return choose_action(config, rules, state, logits, noise);
}

void advance(PlayState* state, const Action& action) {
  state->held = action.buttons;
  ++state->frame;
}

}  // namespace exphil::core
