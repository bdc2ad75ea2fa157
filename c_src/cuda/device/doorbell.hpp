// The host's side of a launch that waits on the GPU for the host ("armed", kernels/policy/armed.cuh): whether
// it still waits, and the word by which it is cancelled. At most one launch of a device is armed at a
// time, because it holds multiprocessors and its stream while it waits; the driver's calls that wait for the
// device would wait for it. So this library cancels it before every such call of its own (SlowCall, and every
// wait for a stream or an event). Launches of other devices stay armed meanwhile. Any thread; nothing here
// calls the driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace exphil::cuda {

// The numbers of launches wrap around. Words that are compared with them are kept within so many of them.
inline constexpr unsigned kNumberWindow = 1u << 29;

class Doorbell;

// Which launch of a device is armed. One for each Context, which its doorbells do not outlive.
class ArmedSlot {
 public:
  ArmedSlot();
  ~ArmedSlot();
  ArmedSlot(const ArmedSlot&) = delete;
  ArmedSlot& operator=(const ArmedSlot&) = delete;

  // Cancels whatever launch of this device is armed.
  void cancel() noexcept {
    if (last_.load() != nullptr) cancel_last();
  }
  // The same of every device.
  static void cancel_all() noexcept;

 private:
  friend class Doorbell;
  friend class SlowCall;
  void cancel_last() noexcept;

  std::mutex mutex_;  // of the life of *last_
  std::atomic<Doorbell*> last_{nullptr};
  std::atomic<int> slow_calls_{0};  // under way on this device
  ArmedSlot* next_ = nullptr;       // of all slots

  static inline std::mutex all_mutex_;
  static inline ArmedSlot* first_ = nullptr;
  static inline std::atomic<int> slow_calls_of_all_{0};  // under way, those that concern every device
};

class Doorbell {
 public:
  explicit Doorbell(ArmedSlot& slot) : slot_(slot) {}
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  // The word in mapped host memory that the launches read (ArmedArguments::cancelled). It must stay valid
  // until the last launch has ended; once, before the first arm().
  void open(std::uint64_t* cancelled) { cancelled_ = cancelled; }

  // Launch `number` is about to be made, and waits then. Cancels the one that is armed, of any doorbell of
  // the device. Numbers grow from launch to launch. False where a slow call that concerns the device is in
  // progress: nothing is armed then.
  bool arm(unsigned number);
  bool armed(unsigned number) const noexcept { return armed_.load(std::memory_order_relaxed) == number; }
  // Whether launch `number` is still armed; it no longer is afterwards, and will not be cancelled.
  bool take(unsigned number) noexcept {
    return armed_.compare_exchange_strong(number, 0, std::memory_order_acq_rel);
  }
  // Cancels what is armed: it ends within microseconds, without its step. Does not wait for that.
  void cancel() noexcept;

 private:
  ArmedSlot& slot_;
  std::uint64_t* cancelled_ = nullptr;
  std::atomic<unsigned> armed_{0};  // the launch's number; 0: none
};

}  // namespace exphil::cuda
