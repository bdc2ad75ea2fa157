// Keeps the average of what a session's frame takes, which decides where the next one runs: see is_short_step
// in work.hpp, and tells the background threads that frames are played. Used by session.cpp and play.cpp.
#pragma once

#include <atomic>
#include <chrono>

#include "core/background.hpp"
#include "nif/dispatch.hpp"
#include "nif/resources.hpp"

namespace exphil::nif {

class StepTimer {
 public:
  using Clock = std::chrono::steady_clock;

  explicit StepTimer(const SessionHandle& session, Clock::time_point begin = Clock::now())
      : microseconds_(*session.step_microseconds), begin_(begin) {}
  ~StepTimer() {
    if (late_) return;
    const std::chrono::duration<float, std::micro> taken = Clock::now() - begin_;
    const float before = microseconds_.load(std::memory_order_relaxed);
    const float now = before == 0 ? taken.count() : before + (taken.count() - before) / kSteps;
    microseconds_.store(now, std::memory_order_relaxed);
    core::note_frame();
  }
  StepTimer(const StepTimer&) = delete;
  StepTimer& operator=(const StepTimer&) = delete;

  // What to throw for a frame that goes on in a dirty job, whose timer begins where this one did.
  LateCall late(Call& call, const core::Late& late) {
    late_ = true;
    return {encode_handle(call, LateHandle{late.frame, begin_})};
  }

 private:
  static constexpr float kSteps = 16;
  std::atomic<float>& microseconds_;
  const Clock::time_point begin_;
  bool late_ = false;
};

}  // namespace exphil::nif
