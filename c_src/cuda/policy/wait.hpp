// Waits for the GPU without sleeping where the result is microseconds away. Used by cuda/policy/.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

#include "core/policy/policy.hpp"
#include "core/work/background.hpp"
#include "core/work/pause.hpp"
#include "cuda/device/stream.hpp"

namespace exphil::cuda {

// Polls `done` until it returns true or the time is over. Returns false where the time is over.
//
// Keeps its core all that time, except in a background thread, which yields it after the first 100 us. A
// thread that yields to a scheduler of the BEAM gets its core back when Linux takes it from the scheduler, at
// a tick of its clock: the scheduler computes, or spins for more work. Waits of 160 us beside a VM whose
// 8,000 processes wake 60 times a second, on 2 cores: where they yielded after 100 us they took 850 us on
// average and 6 ms for one in a hundred, else 163 us and 163 us; beside 4,000 processes 216 us and 715 us,
// else 162 us and 181 us. The frames that come meanwhile are late, and make the next launch longer.
template <class Done>
bool spin_until(Done done, std::int64_t microseconds) {
  using Clock = std::chrono::steady_clock;
  const bool gives_way = core::on_background_thread();
  const Clock::time_point start = Clock::now();
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      core::pause_briefly();
    }
    const auto passed = Clock::now() - start;
    if (passed > std::chrono::microseconds(microseconds)) return false;
    if (gives_way && passed > std::chrono::microseconds(100)) std::this_thread::yield();
  }
}

// Waits until the work before the event is done; sleeps after so many microseconds. Throws the work's error.
inline void await_event(Event& event, std::int64_t microseconds) {
  if (!spin_until([&] { return event.done(); }, microseconds)) event.synchronize();
}

// For a caller that must not wait: locks a mutex that is mostly held for a microsecond or two. Throws
// core::WouldWait where it is held for longer.
inline std::unique_lock<std::mutex> lock_soon(std::mutex& mutex) {
  constexpr std::int64_t kMicroseconds = 30;
  std::unique_lock<std::mutex> lock(mutex, std::defer_lock);
  if (!spin_until([&] { return lock.try_lock(); }, kMicroseconds)) throw core::WouldWait{};
  return lock;
}

}  // namespace exphil::cuda
