// The options of the policy calls, which Elixir sends as maps: ExPhil.Native.Policy.Loading and
// Policy.SessionOptions build them. Used by policy.cpp and act.cpp; plain data of one call.
#pragma once

#include <optional>
#include <string>

#include "core/checkpoint/reader.hpp"
#include "core/session/session.hpp"
#include "core/trunk/load.hpp"
#include "nif/frames.hpp"

namespace exphil::nif {

// %{max_sessions, check_finite, gather, precision, states, norm_epsilon, window, trunk: %{option => an atom
// or a number}}; the first one and the last three may be missing or nil.
struct LoadRequest {
  std::optional<std::int64_t> max_sessions;
  bool gather = false;
  core::PolicyLoadOptions options;
};
template <>
struct Decoder<LoadRequest> {
  static LoadRequest decode(Call& call, Term term, const char* argument);
};

// %{window, pad, history, fps, latency, device: the index of one of the policy's} and the rules of act:
// %{temperature, deterministic, deterministic_buttons, hysteresis: {press, release}, seed}. All are optional.
struct SessionRequest {
  core::SessionOptions options;
  std::string rule;  // ":temperature", say: a rule that was given, where there is one
  std::optional<std::int64_t> device;
};
template <>
struct Decoder<SessionRequest> {
  static SessionRequest decode(Call& call, Term term, const char* argument);
};

// The rules of act, and %{frame, held: the buttons' names, uniforms: f32}. All are optional.
struct SampleRequest {
  core::PlayRules rules;
  core::PlayState state;
  std::optional<Frames> uniforms;
};
template <>
struct Decoder<SampleRequest> {
  static SampleRequest decode(Call& call, Term term, const char* argument);
};

inline constexpr const char* kButtonNames[core::kButtons] = {"a", "b", "x", "y", "z", "l", "r", "d_up"};

}  // namespace exphil::nif
