// Keeps the average of what a session's frame takes, which decides where the next one runs: see is_short_step
// in work.hpp, and tells the background threads that frames are played. Used by session.cpp and play.cpp.
#pragma once

#include <atomic>
#include <chrono>

#include "core/background.hpp"
#include "nif/resources.hpp"

namespace exphil::nif {

class StepTimer {
 public:
  explicit StepTimer(const SessionHandle& session)
      : microseconds_(*session.step_microseconds), begin_(Clock::now()) {}
  ~StepTimer() {
    const std::chrono::duration<float, std::micro> taken = Clock::now() - begin_;
    const float before = microseconds_.load(std::memory_order_relaxed);
    const float now = before == 0 ? taken.count() : before + (taken.count() - before) / kSteps;
    microseconds_.store(now, std::memory_order_relaxed);
    core::note_frame();
  }
  StepTimer(const StepTimer&) = delete;
  StepTimer& operator=(const StepTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr float kSteps = 16;
  std::atomic<float>& microseconds_;
  const Clock::time_point begin_;
};

}  // namespace exphil::nif
