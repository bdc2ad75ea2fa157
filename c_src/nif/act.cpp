// A frame in, a controller's action out. The rules are those of core/session/play.hpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "nif/frames.hpp"
#include "nif/functions.hpp"
#include "nif/group.hpp"
#include "nif/policy_options.hpp"
#include "nif/step_timer.hpp"

namespace exphil::nif {

namespace {

// The atoms of an action, which are the same terms in every environment as long as the VM runs. An action has
// about forty of them; looking each up by its name took longer than choosing the action.
struct ActionAtoms {
  std::array<Term, core::kButtons> buttons;
  std::array<Term, 3> bins;
  std::array<Term, 5> confidence;
  std::array<Term, 7> fields;
  Term name, no, yes;

  explicit ActionAtoms(Call& call)
      : bins{encode_atom(call, "main"), encode_atom(call, "c"), encode_atom(call, "shoulder")},
        confidence{encode_atom(call, "buttons"), bins[0], bins[1], bins[2], encode_atom(call, "overall")},
        fields{encode_atom(call, "__struct__"),
               confidence[0],
               bins[0],
               bins[1],
               bins[2],
               encode_atom(call, "bins"),
               encode_atom(call, "confidence")},
        name(encode_atom(call, "Elixir.ExPhil.Native.Policy.Action")),
        no(encode_atom(call, "false")),
        yes(encode_atom(call, "true")) {
    std::transform(std::begin(kButtonNames), std::end(kButtonNames), buttons.begin(),
                   [&](const char* button) { return encode_atom(call, button); });
  }
};

Term encode_pair(Call& call, Term first, Term second) {
  return enif_make_tuple2(call.env(), first, second);
}

Term encode_actions(Call& call, const std::vector<core::Action>& actions) {
  std::vector<Term> terms;
  for (const core::Action& action : actions) terms.push_back(encode_action(call, action));
  return encode_list(call, terms);
}

}  // namespace

Term encode_action(Call& call, const core::Action& action) {
  static const ActionAtoms atoms(call);
  const auto number = [&](double value) {
    return enif_make_double(call.env(), std::isfinite(value) ? value : 0.0);
  };
  const auto bin = [&](std::size_t axis) { return encode_integer(call, action.bins[axis]); };
  const auto axis = [&](std::size_t index) { return number(action.axes[index]); };
  std::array<Term, core::kButtons> buttons;
  std::transform(action.buttons.begin(), action.buttons.end(), buttons.begin(),
                 [&](bool pressed) { return pressed ? atoms.yes : atoms.no; });
  const auto& sure = action.confidence;
  return encode_map<7>(
      call, atoms.fields,
      {atoms.name, encode_map(call, atoms.buttons, buttons), encode_pair(call, axis(0), axis(1)),
       encode_pair(call, axis(2), axis(3)), axis(4),
       encode_map<3>(call, atoms.bins,
                     {encode_pair(call, bin(0), bin(1)), encode_pair(call, bin(2), bin(3)), bin(4)}),
       encode_map<5>(call, atoms.confidence,
                     {number(sure[0]), number(sure[1]), number(sure[2]), number(sure[3]), number(sure[4])})});
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

Term act_batch(Call& call, GroupOrList sessions, Frames obs) {
  const core::PolicyConfig& config = sessions.loaded().policy->config();
  const std::int64_t count = sessions.count();
  obs.require_shape({count, config.d_input}, "obs");
  std::vector<float> logits(static_cast<std::size_t>(count * config.d_output));
  return encode_actions(call, sessions.act(obs.data, logits.data()));
}

Term resimulate_acts(Call& call, SessionHandle& session, std::int64_t frames_back, Frames frames) {
  const core::PolicyConfig& config = session.loaded->policy->config();
  const std::int64_t seq = frames.require_rows(config.d_input, "frames");
  std::vector<float> logits(static_cast<std::size_t>(core::checked_multiply(seq, config.d_output, "frames")));
  return encode_actions(
      call, session.session->resimulate_acts(frames_back, frames.data, seq, logits.data(), call.may_wait()));
}

Term sample(Call& call, PolicyHandle& policy, Frames logits, SampleRequest request) {
  const std::shared_ptr<LoadedPolicy> loaded = policy.loaded();
  const core::PolicyConfig& config = loaded->policy->config();
  core::require_controller(config, "policy");
  logits.require_shape({config.d_output}, "outs");
  const float* uniforms = nullptr;
  if (request.uniforms) {
    request.uniforms->require_shape({config.d_output}, ":uniforms");
    core::require_uniforms(request.uniforms->data, config.d_output, ":uniforms");
    uniforms = request.uniforms->data;
  }
  return encode_action(call,
                       core::choose_action(config, request.rules, request.state, logits.data, uniforms));
}

}  // namespace exphil::nif
