// A pass that a thread which is awake already takes part in: the thread that awaits a paced frame
// (core/session/pace.cpp) computes one half of its step, the thread that the frame came to the other. Nobody
// has to be woken. Used by host/policy/policy.cpp; safe from any thread.
#pragma once

#include <atomic>
#include <chrono>

#include "core/work/pause.hpp"

namespace exphil::host {

class SharedPass {
 public:
  // Between await(1) and await(-1) this thread will call help() soon after a pass has begun.
  void await(int change) noexcept { waiting_.fetch_add(change, std::memory_order_relaxed); }
  bool has_helper() const noexcept { return waiting_.load(std::memory_order_relaxed) > 0; }

  // Calls lane() in this thread, and at most once in one that helps; returns when both have ended. False
  // where another pass is shared now: then nothing was called. lane distributes its pieces itself and does
  // not throw; a helper may come late or never.
  template <class Lane>
  bool run(const Lane& lane) noexcept {
    Job job{[](const void* self) { (*static_cast<const Lane*>(self))(); }, &lane};
    Job* none = nullptr;
    if (!open_.compare_exchange_strong(none, &job)) return false;
    lane();
    open_.store(nullptr);  // before the look at inside_, as help() does both in reverse
    core::wait_awake([&] { return inside_.load() == 0; });
    return true;
  }

  // Takes part in the pass that is open, or opened within this time. Returns whether there was one.
  bool help(std::chrono::nanoseconds patience) noexcept {
    const Clock::time_point end = Clock::now() + patience;
    do {
      for (int i = 0; i < 16; ++i) {
        if (open_.load(std::memory_order_relaxed) != nullptr && join()) return true;
        core::pause_briefly();
      }
    } while (Clock::now() < end);
    return false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    void (*call)(const void*);
    const void* lane;
    // A helper whose lane has ended may come again while the other one has not: a third lane would take the
    // place of one of the two.
    std::atomic<bool> helped{false};
  };

  bool join() noexcept {
    bool joined = false;
    if (inside_.fetch_add(1) == 0) {
      if (Job* const job = open_.load(); job != nullptr && !job->helped.exchange(true)) {
        job->call(job->lane);
        joined = true;
      }
    }
    inside_.fetch_sub(1);
    return joined;
  }

  std::atomic<int> waiting_{0}, inside_{0};
  std::atomic<Job*> open_{nullptr};
};

}  // namespace exphil::host
