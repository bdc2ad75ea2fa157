// Counts the driver calls of this library that may hold the driver's locks for milliseconds: allocating and
// freeing, loading modules, creating and destroying streams. A launch made meanwhile may block as long, so a
// frame on a thread that must not wait is not sent while there is one, and a launch that waits on the GPU
// (doorbell.hpp) is cancelled. Calls of other libraries in the process are not counted. Safe from any thread.
#pragma once

#include <atomic>

#include "cuda/device/doorbell.hpp"

namespace exphil::cuda {

// Surrounds such a call.
class SlowCall {
 public:
  SlowCall() {
    count_.fetch_add(1);  // before the look at what is armed, as Doorbell::arm looks at both in reverse
    Doorbell::cancel_any();
  }
  ~SlowCall() { count_.fetch_sub(1, std::memory_order_relaxed); }
  SlowCall(const SlowCall&) = delete;
  SlowCall& operator=(const SlowCall&) = delete;

  static bool in_progress() { return count_.load() > 0; }

 private:
  static inline std::atomic<int> count_{0};
};

}  // namespace exphil::cuda
