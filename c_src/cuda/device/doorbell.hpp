// The host's side of a launch that waits on the GPU for the host ("armed", kernels/policy/armed.cuh): whether
// it still waits, and the word by which it is cancelled. At most one launch of the process is armed at a
// time, because it holds multiprocessors and its stream while it waits; the driver's calls that wait for the
// device would wait for it. So this library cancels it before every such call of its own (SlowCall, and every
// wait for a stream or an event). Any thread; nothing here calls the driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace exphil::cuda {

// The numbers of launches wrap around. Words that are compared with them are kept within so many of them.
inline constexpr unsigned kNumberWindow = 1u << 29;

class Doorbell {
 public:
  Doorbell() = default;
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  // The word in mapped host memory that the launches read (ArmedArguments::cancelled). It must stay valid
  // until the last launch has ended; once, before the first arm().
  void open(std::uint64_t* cancelled) { cancelled_ = cancelled; }

  // Launch `number` is about to be made, and waits then. Cancels the one that is armed, of any doorbell.
  // Numbers grow from launch to launch. False where a slow call is in progress: nothing is armed then.
  bool arm(unsigned number);
  bool armed(unsigned number) const noexcept { return armed_.load(std::memory_order_relaxed) == number; }
  // Whether launch `number` is still armed; it no longer is afterwards, and will not be cancelled.
  bool take(unsigned number) noexcept {
    return armed_.compare_exchange_strong(number, 0, std::memory_order_acq_rel);
  }
  // Cancels what is armed: it ends within microseconds, without its step. Does not wait for that.
  void cancel() noexcept;
  // The same of whatever launch is armed in this process.
  static void cancel_any() noexcept {
    if (last_.load() != nullptr) cancel_last();
  }

 private:
  static void cancel_last() noexcept;

  std::uint64_t* cancelled_ = nullptr;
  std::atomic<unsigned> armed_{0};  // the launch's number; 0: none
  static inline std::mutex mutex_;  // of the life of *last_
  static inline std::atomic<Doorbell*> last_{nullptr};
};

}  // namespace exphil::cuda
