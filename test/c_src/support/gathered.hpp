// Frames that a test submits to a session that gathers, and awaits.
#pragma once

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "core/session/gatherer.hpp"
#include "core/session/session.hpp"

namespace exphil::test {

// What a gathered frame was answered.
struct GatheredAnswer {
  std::vector<float> out;
  core::Action action;
  std::int64_t frames = 0;  // of its launch
};

class AwaitedFrame final : public core::GatheredFrame {
 public:
  AwaitedFrame(core::Session& session, const float* obs, bool acts) : GatheredFrame(session, obs, acts) {}
  std::future<GatheredAnswer> future() { return promise_.get_future(); }

  void answer(const float* out, const core::Action& action,
              const core::GatheredLaunch& launch) noexcept override {
    const auto count = session().policy()->config().d_output;
    promise_.set_value({std::vector<float>(out, out + count), action, launch.frames});
  }
  void fail(const std::exception_ptr& error) noexcept override { promise_.set_exception(error); }

 private:
  std::promise<GatheredAnswer> promise_;
};

inline std::future<GatheredAnswer> submit(core::Session& session, const float* obs, bool acts = false,
                                          bool may_wait = true) {
  auto frame = std::make_unique<AwaitedFrame>(session, obs, acts);
  auto future = frame->future();
  session.submit(std::move(frame), may_wait);
  return future;
}

// A frame as a process of Elixir plays it: alone where nobody else plays, and else gathered.
inline GatheredAnswer play_gathered(core::Session& session, const float* obs, bool acts = false) {
  GatheredAnswer answer;
  answer.out.resize(static_cast<std::size_t>(session.policy()->config().d_output));
  if (auto turn = session.gatherer()->take_turn()) {
    try {
      if (acts) answer.action = session.act(obs, answer.out.data(), false);
      if (!acts) session.step(obs, answer.out.data(), false);
      return answer;
    } catch (const core::Late& late) {
      auto frame = std::make_unique<AwaitedFrame>(session, obs, acts);
      auto future = frame->future();
      session.gatherer()->finish(std::move(*turn), late.frame, std::move(frame));
      return future.get();
    } catch (const core::WouldWait&) {
      turn->give_up();
    }
  }
  return submit(session, obs, acts).get();
}

}  // namespace exphil::test
