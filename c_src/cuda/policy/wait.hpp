// Waits for the GPU without sleeping where the result is microseconds away. Used by cuda/policy/.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include "core/pause.hpp"

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

}  // namespace exphil::cuda
