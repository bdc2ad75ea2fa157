// Frames of sessions whose policy gathers them: step and act that answer at once where the frame is alone,
// and otherwise by a message, as the queue's calls do. core/session/gatherer.hpp decides.
#include <algorithm>
#include <utility>

#include "nif/frames.hpp"
#include "nif/functions.hpp"
#include "nif/step_timer.hpp"

namespace exphil::nif {

namespace {

// A frame and the process that waits for it. A process that has ended gets no message; its frame is played
// all the same.
class GatheredCall final : public core::GatheredFrame {
 public:
  using Clock = StepTimer::Clock;

  GatheredCall(Call& call, SessionHandle& session, const Frames& obs, Term ref, bool acts)
      : GatheredFrame(*session.session, obs.data, acts), handle_(session), is_tensor_(obs.is_tensor) {
    enif_self(call.env(), &caller_);
    env_ = enif_alloc_env();
    if (env_ == nullptr) throw std::bad_alloc();
    ref_ = enif_make_copy(env_, ref);
    enif_keep_resource(&handle_);
  }
  ~GatheredCall() override {
    enif_free_env(env_);
    enif_release_resource(&handle_);
  }

  // The frame has begun already.
  void goes_on_since(Clock::time_point begin) { begin_ = begin; }

  void answer(const float* out, const core::Action& action,
              const core::GatheredLaunch& launch) noexcept override {
    if (begin_) const StepTimer timer(handle_, *begin_);
    if (launch.frames == 1) StepTimer::note(handle_, launch);
    Call call(env_);
    try {
      send(encode_ok(call, acts() ? encode_action(call, action) : encode_outputs(call, out)));
    } catch (...) {
      send(encode_current_exception(call));
    }
  }

  void fail(const std::exception_ptr& error) noexcept override {
    Call call(env_);
    try {
      std::rethrow_exception(error);
    } catch (...) {
      send(encode_current_exception(call));
    }
  }

 private:
  Term encode_outputs(Call& call, const float* values) const {
    const std::int64_t d_output = handle_.loaded->policy->config().d_output;
    Result out(call, *handle_.loaded->backend, static_cast<std::size_t>(d_output) * sizeof(float));
    std::copy_n(values, d_output, out.floats());
    Frames form;
    form.is_tensor = is_tensor_;
    return form.answer(call, {d_output}, out.term());
  }

  void send(Term answer) noexcept {
    enif_send(nullptr, &caller_, env_, enif_make_tuple2(env_, ref_, answer));
  }

  SessionHandle& handle_;
  const bool is_tensor_;
  ErlNifPid caller_{};
  ErlNifEnv* env_ = nullptr;
  Term ref_ = 0;
  std::optional<Clock::time_point> begin_;
};

core::Gatherer& gatherer_of(const SessionHandle& session) {
  if (core::Gatherer* const gatherer = session.session->gatherer()) return *gatherer;
  core::fail(core::ErrorKind::unsupported, "session", "the frames of this session are not gathered");
}

// `play` steps the session in this thread, without waiting.
template <class Play>
std::optional<Term> gather(Call& call, SessionHandle& session, const Frames& obs, Term ref, bool acts,
                           const Play& play) {
  obs.require({session.loaded->policy->config().d_input}, "obs");
  core::Gatherer& gatherer = gatherer_of(session);
  const auto make_frame = [&] { return std::make_unique<GatheredCall>(call, session, obs, ref, acts); };
  keep_resource_types();
  // A call that may wait is one of a session that another call has: that frame may need the turn.
  if (!call.may_wait() && has_short_steps(session)) {
    if (auto turn = gatherer.take_turn()) {
      StepTimer timer(session);
      try {
        return play();
      } catch (const core::Late& late) {
        auto frame = make_frame();
        frame->goes_on_since(timer.hand_over());
        gatherer.finish(std::move(*turn), late.frame, std::move(frame));
        return std::nullopt;
      } catch (const core::WouldWait&) {
        timer.hand_over();
        turn->give_up();
      }
    }
  }
  session.session->submit(make_frame(), call.may_wait());
  return std::nullopt;
}

}  // namespace

std::optional<Term> gather_step(Call& call, SessionHandle& session, Frames obs, Term ref) {
  return gather(call, session, obs, ref, false, [&] {
    const std::int64_t d_output = session.loaded->policy->config().d_output;
    Result out(call, *session.loaded->backend, static_cast<std::size_t>(d_output) * sizeof(float));
    session.session->step(obs.data, out.floats(), false);
    return obs.answer(call, {d_output}, out.term());
  });
}

std::optional<Term> gather_act(Call& call, SessionHandle& session, Frames obs, Term ref) {
  core::require_controller(session.loaded->policy->config(), "session");
  return gather(call, session, obs, ref, true, [&] {
    std::vector<float> logits(static_cast<std::size_t>(session.loaded->policy->config().d_output));
    return encode_action(call, session.session->act(obs.data, logits.data(), false));
  });
}

}  // namespace exphil::nif
