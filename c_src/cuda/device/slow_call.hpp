// Counts the driver calls of this library that may hold the driver's locks for milliseconds: allocating and
// freeing, loading modules, creating and destroying streams. A launch made meanwhile may block as long, so a
// frame on a thread that must not wait is not sent while there is one, on whatever device, because some of
// these locks are those of the process. A launch that waits on the GPU (doorbell.hpp) is cancelled where the
// call concerns its device. Calls of other libraries in the process are not counted. Safe from any thread.
#pragma once

#include <atomic>

#include "cuda/device/doorbell.hpp"

namespace exphil::cuda {

// Surrounds such a call.
class SlowCall {
 public:
  // A call that concerns one device; null: every device, as page-locked memory does, which all of them map.
  explicit SlowCall(ArmedSlot* slot)
      : slot_(slot), slow_calls_(slot != nullptr ? slot->slow_calls_ : ArmedSlot::slow_calls_of_all_) {
    count_.fetch_add(1);
    slow_calls_.fetch_add(1);  // before the look at what is armed, as Doorbell::arm looks at both in reverse
    slot_ != nullptr ? slot_->cancel() : ArmedSlot::cancel_all();
  }
  SlowCall() : SlowCall(nullptr) {}
  ~SlowCall() {
    slow_calls_.fetch_sub(1, std::memory_order_relaxed);
    count_.fetch_sub(1, std::memory_order_relaxed);
  }
  SlowCall(const SlowCall&) = delete;
  SlowCall& operator=(const SlowCall&) = delete;

  static bool in_progress() { return count_.load() > 0; }

 private:
  ArmedSlot* const slot_;
  std::atomic<int>& slow_calls_;
  static inline std::atomic<int> count_{0};
};

}  // namespace exphil::cuda
