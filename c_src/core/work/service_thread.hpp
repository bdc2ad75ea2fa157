// A thread that serves objects of the whole process: it starts with the first of them and is joined when the
// library unloads (stop_at_unload.hpp). Base of the classes that have one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace exphil::core {

class ServiceThread {
 public:
  void stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 protected:
  ServiceThread() = default;
  ~ServiceThread() = default;

  // With mutex_: starts it, where it does not run and is not to end.
  template <class Run>
  void start(Run run) {
    if (!thread_.joinable() && !stopping_) thread_ = std::thread(std::move(run));
  }

  std::mutex mutex_;
  std::condition_variable changed_;  // which the thread waits for
  std::atomic<bool> stopping_{false};

 private:
  std::thread thread_;
};

}  // namespace exphil::core
