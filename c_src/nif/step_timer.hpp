// Keeps the average of what a session's frame takes, which decides where the next one runs (is_short_step in
// work.hpp), and tells the background threads that frames are played. Used by session.cpp and act.cpp.
//
// Where frames are computed in the calling thread, this is the thread's processor time: on a busy machine the
// system takes a thread off its core for milliseconds, and a frame that then ran in a dirty job would need
// two more threads.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "core/work/background.hpp"
#include "nif/dispatch.hpp"
#include "nif/resources.hpp"

namespace exphil::nif {

class StepTimer {
 public:
  using Clock = std::chrono::steady_clock;

  explicit StepTimer(const SessionHandle& session, Clock::time_point begin = Clock::now())
      : microseconds_(*session.step_microseconds),
        waits_(session.loaded->backend->waits_for_device()),
        begin_(waits_ ? begin.time_since_epoch() : processor_time()) {}
  ~StepTimer() {
    if (late_) return;
    const Clock::duration end = waits_ ? Clock::now().time_since_epoch() : processor_time();
    note(microseconds_, std::chrono::duration<float, std::micro>(end - begin_).count());
    core::note_frame();
  }
  StepTimer(const StepTimer&) = delete;
  StepTimer& operator=(const StepTimer&) = delete;

  // What to throw for a frame that goes on in a dirty job, whose timer begins where this one did.
  LateCall late(Call& call, const core::Late& late) {
    return {encode_handle(call, LateHandle{late.frame, hand_over()})};
  }
  // Another timer goes on with the frame; returns where it begins.
  Clock::time_point hand_over() {
    late_ = true;
    return Clock::time_point(begin_);
  }

  // A frame that was measured elsewhere, in this unit.
  static void note(const SessionHandle& session, const core::GatheredLaunch& launch) {
    const bool waits = session.loaded->backend->waits_for_device();
    note(*session.step_microseconds, waits ? launch.microseconds : launch.processor_microseconds);
  }

 private:
  static constexpr float kSteps = 16, kMost = 1000;

  // A single frame that the driver held up for long does not send the next ones to dirty jobs.
  static void note(std::atomic<float>& microseconds, float taken) {
    taken = std::min(taken, kMost);
    const float before = microseconds.load(std::memory_order_relaxed);
    const float now = before == 0 ? taken : before + (taken - before) / kSteps;
    microseconds.store(now, std::memory_order_relaxed);
  }

  // Of the calling thread.
  static Clock::duration processor_time() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }

  std::atomic<float>& microseconds_;
  const bool waits_;
  const Clock::duration begin_;
  bool late_ = false;
};

}  // namespace exphil::nif
