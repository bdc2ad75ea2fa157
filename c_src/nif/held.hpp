// What the calls of this library hold of the VM's normal schedulers: how many calls there were, and the
// longest, in processor time of the scheduler's thread and in time. The first says what the library computes
// or polls, the second also what the system takes away meanwhile. Off, and then one load of memory for each
// call, until the tool held_calls has been called once (test/long_schedule.exs does). Safe from any thread.
#pragma once

#include <erl_nif.h>
#include <time.h>

#include <atomic>
#include <cstdint>

namespace exphil::nif {

// All times in nanoseconds.
struct HeldCalls {
  std::int64_t calls = 0, long_calls = 0;  // long_calls: those with at least the limit of processor time
  std::int64_t longest_processor_time = 0, longest_time = 0;
};

// What was measured since the last call, and the limit from now on. The first call switches the measurement
// on.
HeldCalls take_held_calls(std::int64_t limit) noexcept;

// Around a call. Counts it where the thread is that of a normal scheduler.
class HeldTimer {
 public:
  HeldTimer() noexcept : counts_(is_on() && enif_thread_type() == ERL_NIF_THR_NORMAL_SCHEDULER) {
    if (counts_) processor_time_ = now(CLOCK_THREAD_CPUTIME_ID), time_ = now(CLOCK_MONOTONIC);
  }
  ~HeldTimer() {
    if (counts_) count(now(CLOCK_THREAD_CPUTIME_ID) - processor_time_, now(CLOCK_MONOTONIC) - time_);
  }
  HeldTimer(const HeldTimer&) = delete;
  HeldTimer& operator=(const HeldTimer&) = delete;

 private:
  friend HeldCalls take_held_calls(std::int64_t limit) noexcept;
  static bool is_on() noexcept { return on_.load(std::memory_order_relaxed); }
  static void count(std::int64_t processor_time, std::int64_t time) noexcept;
  static std::int64_t now(clockid_t clock) noexcept {
    timespec time{};
    clock_gettime(clock, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }

  static inline std::atomic<bool> on_{false};
  const bool counts_;
  std::int64_t processor_time_ = 0, time_ = 0;
};

}  // namespace exphil::nif
