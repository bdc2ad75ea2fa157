// How ExPhil turns a policy's outputs into a controller: six named heads, buttons by sigmoid, sticks and
// shoulder by argmax or sampling. The rules are those of its sampling.ex; ../shared/exphil/README.md tells
// them. Random numbers are counted, not carried: Philox of a seed and a frame's number, so that a frame
// played again draws the same numbers. Pure functions on plain data; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/policy/config.hpp"

namespace exphil::core {

inline constexpr std::int64_t kButtons = 8;  // A, B, X, Y, Z, L, R, D-pad up
inline constexpr int kAxes = 5;              // main x, main y, c x, c y, shoulder

struct PlayRules {
  double temperature = 1.0;  // of sticks and shoulder; buttons are not touched by it
  bool deterministic = false;
  bool deterministic_buttons = false;
  // {press, release}: a button that was not held is pressed above `press`, a held one stays above `release`.
  // Where buttons are deterministic; else they are sampled and this has no effect.
  std::optional<std::pair<double, double>> hysteresis;
  std::uint64_t seed = 0;
};

// What play carries from frame to frame, beside the policy's state.
struct PlayState {
  std::uint64_t frame = 0;            // frames played
  std::array<bool, kButtons> held{};  // the buttons emitted last
};

struct Action {
  std::array<bool, kButtons> buttons{};
  std::array<std::int64_t, kAxes> bins{};
  std::array<double, kAxes> axes{};  // bin / (bins - 1): 0 to 1, a stick's centre is 0.5
  // Of buttons, main stick, c-stick, shoulder, and all together.
  std::array<double, 5> confidence{};
};

// Throws unsupported unless the policy has ExPhil's six heads with 8 buttons, limit_exceeded where they have
// more than 512 outputs. What passes can be played: choosing an action then fails no more.
void require_controller(const PolicyConfig& config, const char* argument);

// Uniform numbers in [0, 1) for the outputs of one frame, in their order: `count` of them.
void draw(std::uint64_t seed, std::uint64_t frame, std::int64_t count, float* uniforms);

// The action for these outputs. uniforms: {d_output}, or null: drawn from the rules' seed and the state's
// frame. Does not change the state, and does not throw. The config has passed require_controller.
Action choose_action(const PolicyConfig& config, const PlayRules& rules, const PlayState& state,
                     const float* logits, const float* uniforms);

// The state after `action` was emitted.
void advance(PlayState* state, const Action& action);

}  // namespace exphil::core
