// How ExPhil turns a policy's outputs into a controller state: six named heads, buttons by sigmoid, sticks
// and shoulder by argmax or sampling. Follows its sampling.ex (see ../shared/exphil/README.md). Random
// numbers come from a counter (Philox of a seed and a frame number), not from carried state, so a replayed
// frame draws the same numbers. Pure functions on plain data; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/policy/config.hpp"

namespace exphil::core {

inline constexpr std::int64_t kButtons = 8;        // A, B, X, Y, Z, L, R, D-pad up
inline constexpr int kAxes = 5;                    // main x, main y, c x, c y, shoulder
inline constexpr std::int64_t kMostOutputs = 512;  // ExPhil has 81

struct PlayRules {
  double temperature = 1.0;  // of sticks and shoulder; buttons do not use it. Above 0
  bool deterministic = false;
  bool deterministic_buttons = false;
  // {press, release}: a button that was not held is pressed above `press`; a held one stays held above
  // `release`. No effect where buttons are sampled.
  std::optional<std::pair<double, double>> hysteresis;
  std::uint64_t seed = 0;
};

// The play state carried between frames, beside the policy's state.
struct PlayState {
  std::uint64_t frame = 0;            // frames played
  std::array<bool, kButtons> held{};  // the buttons emitted last
};

struct Action {
  std::array<bool, kButtons> buttons{};
  std::array<std::int64_t, kAxes> bins{};
  std::array<double, kAxes> axes{};  // bin / (bins - 1): 0 to 1, the centre of a stick is 0.5
  // Of buttons, main stick, c-stick, shoulder, and overall.
  std::array<double, 5> confidence{};
};

// Throws unsupported unless the policy has ExPhil's six heads with 8 buttons, limit_exceeded where they have
// more than kMostOutputs. For a config that passes, choosing an action cannot fail.
void require_controller(const PolicyConfig& config, const char* argument);

// Throws invalid_argument for the first number that is not in [0, 1).
void require_uniforms(const float* uniforms, std::int64_t count, const char* argument);

// `count` uniform numbers in [0, 1) for the outputs of one frame, in their order.
void draw(std::uint64_t seed, std::uint64_t frame, std::int64_t count, float* uniforms);

// What the choice of one action takes from its random numbers. It does not depend on the outputs, so that it
// can be made while a device computes them.
struct Noise {
  std::array<float, kButtons> uniforms{};     // of the buttons
  std::array<double, kMostOutputs> log_logs;  // log(-log(uniform)) of every other output; unset where rules
                                              // are deterministic
};
// uniforms: {d_output}, or null to draw them from the rules' seed and the frame's number. Does not throw. The
// config must have passed require_controller.
void prepare_noise(const PolicyConfig& config, const PlayRules& rules, std::uint64_t frame,
                   const float* uniforms, Noise* noise);

// The action for these outputs. Does not change the state, does not throw. The config must have passed
// require_controller.
Action choose_action(const PolicyConfig& config, const PlayRules& rules, const PlayState& state,
                     const float* logits, const Noise& noise);
// The same with the noise of these uniforms, or of the state's frame where they are null.
Action choose_action(const PolicyConfig& config, const PlayRules& rules, const PlayState& state,
                     const float* logits, const float* uniforms);

// The state after `action` was emitted.
void advance(PlayState* state, const Action& action);

}  // namespace exphil::core
