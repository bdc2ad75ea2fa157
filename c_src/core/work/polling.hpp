// Threads that poll until a time comes (a paced frame, a tick) keep a core awake, and keep it from others.
// This bounds them for the entire process: at most one less than the machine's cores poll at once (one on a
// machine of one core), and none goes on while more threads want a core than there are. Used by
// core/session/pace.cpp and nif/clock.cpp, and by host/policy/ before it shares a step. Every function is
// safe from any thread; an object is one thread's.
#pragma once

#include <algorithm>
#include <chrono>

namespace exphil::core {

// The threads of the entire system that run or want to run, this one included; 0 where the system does not
// tell. Reads /proc/loadavg, in half a microsecond.
int runnable_threads() noexcept;

// Replaces what runnable_threads() returns; null: the system again. For tests.
void set_runnable_threads(int (*count)()) noexcept;

// Whether threads wait for a core, apart from those that only poll here and their companions. The answer may
// be 50 microseconds old.
bool cores_are_wanted() noexcept;

// Bounds the time that one thread polls to half of it, over some frames: where many frames are expected at
// different times, not all of them are awaited awake. Plain data of one thread.
class PollingShare {
 public:
  using Clock = std::chrono::steady_clock;

  bool allows(Clock::time_point now) noexcept {
    left_ = std::min<Clock::duration>(kMost, left_ + (now - seen_) / 2);
    seen_ = now;
    return left_ > Clock::duration::zero();
  }
  void spent(Clock::duration time) noexcept { left_ -= time; }

 private:
  static constexpr std::chrono::milliseconds kMost{10};
  Clock::duration left_{kMost};
  Clock::time_point seen_ = Clock::now();
};

// A thread's place among those that may poll. Takes no lock and allocates nothing.
class PollingPlace {
 public:
  using Clock = std::chrono::steady_clock;

  PollingPlace() noexcept;
  ~PollingPlace();
  PollingPlace(const PollingPlace&) = delete;
  PollingPlace& operator=(const PollingPlace&) = delete;

  // Called every few microseconds of the polling. False where there is no place, or where threads wait for a
  // core: then the thread sleeps instead. Asks the system every 50 microseconds, and believes its fourth
  // answer in turn: a frame that begins wakes a scheduler or two and the thread of the ticks, some of them
  // for microseconds only, and that is when the thread that polls is needed.
  bool may_poll() noexcept;
  // From now on another thread of this library may be awake for what this one polls for: a helper that looks
  // for work a while before it sleeps, and gives its core to whoever wants it. So it does not count as a
  // thread that wants one.
  void add_companion() noexcept;
  // The last answer: nothing that takes longer than a look should begin.
  bool wanted() const noexcept { return wanted_; }

  // Polls until `due`, but for at most `bound`. Returns whether it may go on; false may come earlier.
  bool poll_until(Clock::time_point due, std::chrono::nanoseconds bound) noexcept;

 private:
  static constexpr std::chrono::microseconds kLook{50};
  static constexpr int kRefusals = 4;
  const bool has_place_;
  bool wanted_ = false, may_ = true, has_companion_ = false;
  int refusals_ = 0;  // in turn
  Clock::time_point next_look_{};
};

}  // namespace exphil::core
