// How often a policy's steps come, and what else is under way: whether threads should share a step. Used by
// policy.cpp; safe from any thread.
#pragma once

#include <atomic>
#include <chrono>

#include "core/work/background.hpp"
#include "core/work/polling.hpp"

namespace exphil::host {

// Decides whether a step is shared by several threads. Measured on two cores, d_model 256: steps that follow
// one another at once (a rollback's frames, offline play) take 60 us together and 150 us alone, for each core
// then finds its half of the weights in its own cache; a step every 16.7 ms takes 210 us alone and 240 us
// together, because the weights are cold and a sleeping processor costs more to wake than it saves; a paced
// step takes 110 to 190 us together with the thread of the pace, which is awake. And where calls of any
// policy are under way, or other threads wait for a core, a helper that the system takes off its core in the
// middle of a piece would keep the step waiting.
class Cadence {
 public:
  // shares: whether threads ever share the policy's steps. To read the clock is a tenth of a small policy's
  // step.
  explicit Cadence(bool shares) : shares_(shares) {}

  class Call {
   public:
    explicit Call(Cadence& cadence)
        : cadence_(cadence),
          alone_(calls_.fetch_add(1, std::memory_order_relaxed) == 0),
          soon_(cadence.shares_ && Clock::now().time_since_epoch() -
                                           Clock::duration(cadence.last_.load(std::memory_order_relaxed)) <
                                       kSoon) {}
    ~Call() {
      if (cadence_.shares_) {
        cadence_.last_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
      }
      calls_.fetch_sub(1, std::memory_order_relaxed);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    bool has_cores() const { return alone_ && !core::background_computes() && !core::cores_are_wanted(); }
    bool soon() const { return soon_; }

   private:
    Cadence& cadence_;
    const bool alone_, soon_;
  };

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kSoon{500};
  static inline std::atomic<int> calls_{0};  // of all policies
  const bool shares_;
  std::atomic<Clock::rep> last_{0};  // when the last call of this policy ended
};

}  // namespace exphil::host
