// A mutex that one thread may lock and another unlock. Its holder may also hand it over together with a task
// that finishes what the holder has begun and then unlocks: the first thread that needs the mutex runs the
// task, instead of waiting for a thread that may itself be waiting. Used by core/session/session.hpp, whose
// frames may begin on one thread and end on another. Safe from any thread; not recursive.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace exphil::core {

class HandoverMutex {
 public:
  // What remains to be done before the mutex is free.
  class Task {
   public:
    virtual ~Task() = default;
    // Returns when the mutex has been unlocked, by this call or an earlier one. From any thread, several
    // concurrently.
    virtual void run() noexcept = 0;
  };

  HandoverMutex() = default;
  // Whoever unlocked it last may still be waking others.
  ~HandoverMutex() { const std::lock_guard<std::mutex> guard(guard_); }
  HandoverMutex(const HandoverMutex&) = delete;
  HandoverMutex& operator=(const HandoverMutex&) = delete;

  void lock() {
    if (!try_lock()) wait();
  }

  // False also where a task remains to be run.
  bool try_lock() noexcept { return move(kFree, kLocked, std::memory_order_acquire); }

  void unlock() noexcept {
    if (!move(kLocked, kFree, std::memory_order_release)) wake();
  }

  // By the holder, who no longer has it afterwards. The task unlocks.
  void hand_over(std::shared_ptr<Task> task) noexcept {
    const std::lock_guard<std::mutex> guard(guard_);
    task_ = std::move(task);
    state_.store(kAttended);
    changed_.notify_all();
  }

 private:
  // kAttended: locked, and whoever unlocks it takes the guard, because somebody waits or a task remains. It
  // is set, and left, by a thread that has the guard.
  enum State { kFree, kLocked, kAttended };

  bool move(State from, State to, std::memory_order order) noexcept {
    return state_.compare_exchange_strong(from, to, order, std::memory_order_relaxed);
  }

  void wait() {
    std::unique_lock<std::mutex> guard(guard_);
    // Others may wait too, so that who comes from here wakes one of them in its turn.
    while (!move(kFree, kAttended, std::memory_order_acquire)) {
      if (state_.load() != kAttended && !move(kLocked, kAttended, std::memory_order_relaxed)) continue;
      if (std::shared_ptr<Task> task = task_) {
        guard.unlock();
        task->run();
        guard.lock();
      } else {
        changed_.wait(guard);
      }
    }
  }

  void wake() noexcept {
    std::shared_ptr<Task> done;
    const std::lock_guard<std::mutex> guard(guard_);
    done.swap(task_);
    state_.store(kFree, std::memory_order_release);
    changed_.notify_one();
  }

  std::atomic<State> state_{kFree};
  std::mutex guard_;
  std::condition_variable changed_;
  std::shared_ptr<Task> task_;
};

}  // namespace exphil::core
