// Play: takes a frame, returns a controller state. The rules are those of core/policy/play.hpp.
#include <cmath>
#include <utility>

#include "nif/frames.hpp"
#include "nif/functions.hpp"
#include "nif/step_timer.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

namespace {

constexpr const char* kButtonNames[] = {"a", "b", "x", "y", "z", "l", "r", "d_up"};

Term encode_pair(Call& call, Term first, Term second) {
  return enif_make_tuple2(call.env(), first, second);
}

Term encode_action(Call& call, const core::Action& action) {
  const auto number = [&](double value) {
    return enif_make_double(call.env(), std::isfinite(value) ? value : 0.0);
  };
  const auto bin = [&](int axis) {
    return encode_integer(call, action.bins[static_cast<std::size_t>(axis)]);
  };
  const auto axis = [&](int index) { return number(action.axes[static_cast<std::size_t>(index)]); };
  Map buttons;
  for (std::size_t i = 0; i < action.buttons.size(); ++i) {
    buttons.push_back({{kButtonNames[i]}, encode_bool(call, action.buttons[i])});
  }
  const auto& sure = action.confidence;
  const Map confidence = {{{"buttons"}, number(sure[0])},
                          {{"main"}, number(sure[1])},
                          {{"c"}, number(sure[2])},
                          {{"shoulder"}, number(sure[3])},
                          {{"overall"}, number(sure[4])}};
  const Map bins = {{{"main"}, encode_pair(call, bin(0), bin(1))},
                    {{"c"}, encode_pair(call, bin(2), bin(3))},
                    {{"shoulder"}, bin(4)}};
  return encode(call, Map{{{"__struct__"}, encode_atom(call, "Elixir.ExPhil.Native.Policy.Action")},
                          {{"buttons"}, encode(call, buttons)},
                          {{"main"}, encode_pair(call, axis(0), axis(1))},
                          {{"c"}, encode_pair(call, axis(2), axis(3))},
                          {{"shoulder"}, axis(4)},
                          {{"bins"}, encode(call, bins)},
                          {{"confidence"}, encode(call, confidence)}});
}

Term encode_actions(Call& call, const std::vector<core::Action>& actions) {
  std::vector<Term> terms;
  for (const core::Action& action : actions) terms.push_back(encode_action(call, action));
  return encode_list(call, terms);
}

}  // namespace

core::PlayRules rules_of(const RulesTuple& given) {
  core::PlayRules rules;
  rules.temperature = std::get<0>(given);
  rules.deterministic = std::get<1>(given);
  rules.deterministic_buttons = std::get<2>(given);
  if (const auto& hysteresis = std::get<3>(given)) {
    rules.hysteresis = {std::get<0>(*hysteresis), std::get<1>(*hysteresis)};
  }
  const auto [low, high] = std::get<4>(given);
  rules.seed = static_cast<std::uint64_t>(high) << 32 | (static_cast<std::uint64_t>(low) & 0xffffffffu);
  return rules;
}

Term require_controller(Call& call, PolicyHandle& policy) {
  core::require_controller(policy.loaded()->policy->config(), "path");
  return encode_atom(call, "ok");
}

Term act(Call& call, SessionHandle& session, Frames obs) {
  const core::PolicyConfig& config = session.loaded->policy->config();
  obs.require({config.d_input}, "obs");
  std::vector<float> logits(static_cast<std::size_t>(config.d_output));
  StepTimer timer(session);
  try {
    return encode_action(call, session.session->act(obs.data, logits.data(), call.may_wait()));
  } catch (const core::Late& late) {
    throw timer.late(call, late);
  }
}

Term finish_act(Call& call, LateHandle& late, SessionHandle& session, Frames) {
  std::vector<float> logits(static_cast<std::size_t>(session.loaded->policy->config().d_output));
  const StepTimer timer(session, late.begin);
  return encode_action(call, late.frame->answer(logits.data()));
}

Term act_batch(Call& call, std::vector<SessionHandle*> sessions, Frames obs) {
  if (sessions.empty()) fail(ErrorKind::invalid_argument, "sessions", "sessions must not be empty");
  const core::PolicyConfig& config = sessions[0]->loaded->policy->config();
  obs.require({static_cast<std::int64_t>(sessions.size()), config.d_input}, "obs");
  std::vector<float> logits(sessions.size() * static_cast<std::size_t>(config.d_output));
  std::vector<core::Session*> plain;
  for (const SessionHandle* handle : sessions) plain.push_back(handle->session.get());
  return encode_actions(call, core::Session::act_batch(plain, obs.data, logits.data()));
}

Term resimulate_acts(Call& call, SessionHandle& session, std::int64_t frames_back, Frames frames) {
  const core::PolicyConfig& config = session.loaded->policy->config();
  const std::int64_t seq = frames.require_rows(config.d_input, "frames");
  std::vector<float> logits(static_cast<std::size_t>(core::checked_multiply(seq, config.d_output, "frames")));
  return encode_actions(call, session.session->resimulate_acts(frames_back, frames.data, seq, logits.data()));
}

Term sample(Call& call, PolicyHandle& policy, Frames logits, RulesTuple rules,
            std::tuple<std::int64_t, std::int64_t> state, std::optional<Frames> uniforms) {
  const std::shared_ptr<LoadedPolicy> loaded = policy.loaded();
  const core::PolicyConfig& config = loaded->policy->config();
  core::require_controller(config, "policy");
  logits.require({config.d_output}, "logits");
  if (uniforms) uniforms->require({config.d_output}, ":uniforms");
  core::PlayState play;
  play.frame = static_cast<std::uint64_t>(std::get<0>(state));
  for (std::size_t i = 0; i < play.held.size(); ++i) play.held[i] = (std::get<1>(state) >> i & 1) != 0;
  const core::Action action =
      core::choose_action(config, rules_of(rules), play, logits.data, uniforms ? uniforms->data : nullptr);
  return encode_action(call, action);
}

}  // namespace exphil::nif
