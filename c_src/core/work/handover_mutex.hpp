// A mutex that one thread may lock and another unlock. Its holder may also hand it over together with a task
// that finishes what the holder has begun and then unlocks: the first thread that needs the mutex runs the
// task, instead of waiting for a thread that may itself be waiting. Used by core/session/session.hpp, whose
// frames may begin on one thread and end on another. Safe from any thread; not recursive.
#pragma once

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

  void lock() {
    std::unique_lock<std::mutex> guard(guard_);
    while (locked_) {
      if (std::shared_ptr<Task> task = task_) {
        guard.unlock();
        task->run();
        guard.lock();
      } else {
        changed_.wait(guard);
      }
    }
    locked_ = true;
  }

  // False also where a task remains to be run.
  bool try_lock() {
    const std::lock_guard<std::mutex> guard(guard_);
    return locked_ ? false : (locked_ = true);
  }

  void unlock() noexcept {
    std::shared_ptr<Task> done;
    const std::lock_guard<std::mutex> guard(guard_);
    done.swap(task_);
    locked_ = false;
    changed_.notify_one();  // under the guard: the mutex may be destroyed as soon as it is free
  }

  // By the holder, who no longer has it afterwards. The task unlocks.
  void hand_over(std::shared_ptr<Task> task) noexcept {
    const std::lock_guard<std::mutex> guard(guard_);
    task_ = std::move(task);
    changed_.notify_all();
  }

 private:
  std::mutex guard_;
  std::condition_variable changed_;
  std::shared_ptr<Task> task_;
  bool locked_ = false;
};

}  // namespace exphil::core
