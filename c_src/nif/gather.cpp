// Frames of sessions whose policy gathers them: step and act that answer at once where the frame is alone,
// and otherwise by a message, as the queue's calls do. core/session/gatherer.hpp decides.
#include <algorithm>
#include <utility>

#include "nif/frames.hpp"
#include "nif/functions.hpp"
#include "nif/own_env.hpp"
#include "nif/step_timer.hpp"

namespace exphil::nif {

namespace {

// A frame and the process that waits for it. A process that has ended gets no message; its frame is played
// all the same.
//
// What a frame needs is allocated by the scheduler that submits it, and its message by the one that delivers
// it, because a thread of the gatherer would take them from an allocator of the VM that it shares, under a
// lock, with all threads that are no schedulers.
class GatheredCall final : public core::GatheredFrame {
 public:
  using Clock = StepTimer::Clock;

  // owned: by its session's handle, for one frame after another.
  explicit GatheredCall(bool owned) : owned_(owned) {}

  void begin(Call& call, SessionHandle& session, const Frames& obs, Term ref, bool acts) {
    enif_keep_resource(&session);
    handle_ = &session;
    GatheredFrame::begin(*session.session, obs.data, acts);
    is_tensor_ = obs.is_tensor;
    begin_.reset();
    enif_self(call.env(), &caller_);
    enif_clear_env(env_.get());
    ref_ = enif_make_copy(env_.get(), ref);
    const std::size_t bytes = acts ? 0 : f32_bytes(1, session.loaded->policy->config().d_output, "obs");
    if (!acts && bytes < core::kSmallestPooledResult) out_.emplace(bytes);
  }

  // The frame has begun already.
  void goes_on_since(Clock::time_point begin) { begin_ = begin; }

  void answer(const float* out, const core::Action& action,
              const core::GatheredLaunch& launch) noexcept override {
    if (begin_) const StepTimer timer(*handle_, *begin_);
    if (launch.frames == 1) StepTimer::note(*handle_, launch);
    Call call(env_.get());
    try {
      send(encode_ok(call, acts() ? encode_action(call, action) : encode_outputs(call, out)));
    } catch (...) {
      send(encode_current_exception(call));
    }
  }

  void fail(const std::exception_ptr& error) noexcept override {
    Call call(env_.get());
    try {
      std::rethrow_exception(error);
    } catch (...) {
      send(encode_current_exception(call));
    }
  }

  // As {ref, {:deliver, answers}}. When the message is there, this object may be another frame's.
  bool pass_on(std::unique_ptr<core::GatheredAnswers>& answers) noexcept override {
    ErlNifEnv* env = nullptr;
    try {
      thread_local const OwnEnv own;
      env = own.get();
    } catch (const std::bad_alloc&) {
      return false;
    }
    static const Term deliver = enif_make_atom(env, "deliver");
    const ErlNifPid caller = caller_;
    AnswersHandle* handle = nullptr;
    try {
      handle = make_resource(AnswersHandle{std::move(answers)});
    } catch (const std::bad_alloc&) {
      return true;  // at the handle's end they were delivered
    }
    const Term told = enif_make_tuple2(env, deliver, enif_make_resource(env, handle));
    const Term message = enif_make_tuple2(env, enif_make_copy(env, ref_), told);
    const bool sent = enif_send(SendingFrom::env(), &caller, env, message) != 0;
    if (!sent) answers = std::move(handle->answers);
    enif_clear_env(env);
    enif_release_resource(handle);
    return sent;
  }

  void release() noexcept override {
    SessionHandle* const handle = std::exchange(handle_, nullptr);
    out_.reset();
    if (owned_) {
      handle->gathers->store(false, std::memory_order_release);
    } else {
      delete this;
    }
    enif_release_resource(handle);  // which may be the end of an owned frame
  }

 private:
  Term encode_outputs(Call& call, const float* values) {
    const std::int64_t d_output = handle_->loaded->policy->config().d_output;
    Frames form;
    form.is_tensor = is_tensor_;
    if (out_) {
      std::copy_n(values, d_output, out_->floats());
      return form.answer(call, {d_output}, out_->term(call));
    }
    Result out(call, *handle_->loaded->backend, f32_bytes(1, d_output, "obs"));
    std::copy_n(values, d_output, out.floats());
    return form.answer(call, {d_output}, out.term());
  }

  void send(Term answer) noexcept {
    ErlNifEnv* const env = env_.get();
    enif_send(SendingFrom::env(), &caller_, env, enif_make_tuple2(env, ref_, answer));
  }

  const bool owned_;
  const OwnEnv env_;
  SessionHandle* handle_ = nullptr;  // kept from begin() to release()
  bool is_tensor_ = false;
  ErlNifPid caller_{};
  Term ref_ = 0;
  std::optional<NewBinary> out_;  // of a frame that steps
  std::optional<Clock::time_point> begin_;
};

using CallPtr = std::unique_ptr<GatheredCall, core::ReleaseFrame>;

// The session's own, or another one where several processes play one session, and that one is in use.
CallPtr make_frame(Call& call, SessionHandle& session, const Frames& obs, Term ref, bool acts) {
  CallPtr frame;
  if (session.gathers->exchange(true, std::memory_order_acquire)) {
    frame.reset(new GatheredCall(false));
  } else {
    try {
      if (!session.gathered) session.gathered = std::make_unique<GatheredCall>(true);
    } catch (...) {
      session.gathers->store(false, std::memory_order_release);
      throw;
    }
    frame.reset(static_cast<GatheredCall*>(session.gathered.get()));
  }
  frame->begin(call, session, obs, ref, acts);
  return frame;
}

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
  keep_resource_types();
  // A call that may wait is one of a session that another call has: that frame may need the turn.
  if (!call.may_wait() && has_short_steps(session)) {
    if (auto turn = gatherer.take_turn()) {
      StepTimer timer(session);
      try {
        return play();
      } catch (const core::Late& late) {
        CallPtr frame = make_frame(call, session, obs, ref, acts);
        frame->goes_on_since(timer.hand_over());
        gatherer.finish(std::move(*turn), late.frame, std::move(frame));
        return std::nullopt;
      } catch (const core::WouldWait&) {
        timer.hand_over();
        turn->give_up();
      }
    }
  }
  session.session->submit(make_frame(call, session, obs, ref, acts), call.may_wait());
  return std::nullopt;
}

}  // namespace

std::optional<Term> gather_step(Call& call, SessionHandle& session, Frames obs, Term ref) {
  return gather(call, session, obs, ref, false, [&] {
    const std::int64_t d_output = session.loaded->policy->config().d_output;
    Result out(call, *session.loaded->backend, f32_bytes(1, d_output, "obs"));
    session.session->step(obs.data, out.floats(), false);
    return obs.answer(call, {d_output}, out.term());
  });
}

Term deliver_answers(Call& call, AnswersHandle& handle) {
  const ErlNifTime begin = enif_monotonic_time(ERL_NIF_USEC);
  {
    const SendingFrom from(call.env());
    handle.answers->deliver();
  }
  report_time(call.env(), enif_monotonic_time(ERL_NIF_USEC) - begin);
  return encode_atom(call, "ok");
}

std::optional<Term> gather_act(Call& call, SessionHandle& session, Frames obs, Term ref) {
  core::require_controller(session.loaded->policy->config(), "session");
  return gather(call, session, obs, ref, true, [&] {
    std::vector<float> logits(static_cast<std::size_t>(session.loaded->policy->config().d_output));
    return encode_action(call, session.session->act(obs.data, logits.data(), false));
  });
}

}  // namespace exphil::nif
