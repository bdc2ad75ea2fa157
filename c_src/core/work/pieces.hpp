// The pieces of one call, which the threads that share it take one after another.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

namespace exphil::core {

// On the stack of the thread that calls. Exceptions stay in here: those of a body never pass through the
// frames of the library that brings the threads, which may have another C++ runtime than this one.
class Pieces {
 public:
  Pieces(std::int64_t count, const std::function<void(std::int64_t)>& body) : count_(count), body_(body) {}

  std::int64_t count() const { return count_; }
  bool exhausted() const { return next_.load(std::memory_order_relaxed) >= count_; }

  // Runs the next piece in this thread; false where none is left. After an exception none is.
  bool run_next() noexcept {
    const std::int64_t piece = next_.fetch_add(1, std::memory_order_relaxed);
    if (piece >= count_) return false;
    try {
      body_(piece);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::current_exception();
      next_.store(count_, std::memory_order_relaxed);
    }
    return true;
  }

  // The first exception, when all threads have left.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  const std::int64_t count_;
  const std::function<void(std::int64_t)>& body_;
  std::atomic<std::int64_t> next_{0};
  std::mutex mutex_;
  std::exception_ptr error_;  // under the mutex
};

}  // namespace exphil::core
