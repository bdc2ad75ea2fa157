// Waits for the GPU without sleeping where the result is microseconds away. Used by cuda/policy/.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

#include "core/policy/policy.hpp"
#include "core/work/pause.hpp"

namespace exphil::cuda {

// Polls `done` until it returns true or the time is over; yields the core after the first 100 us. Returns
// false where the time is over.
template <class Done>
bool spin_until(Done done, std::int64_t microseconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      core::pause_briefly();
    }
    const auto passed = Clock::now() - start;
    if (passed > std::chrono::microseconds(microseconds)) return false;
    if (passed > std::chrono::microseconds(100)) std::this_thread::yield();
  }
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
