#include "core/work/reaper.hpp"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "core/work/own_thread.hpp"
#include "core/work/service_thread.hpp"
#include "core/work/stop_at_unload.hpp"

namespace exphil::core {

namespace {

class Reaper : public ServiceThread {
 public:
  void push(std::shared_ptr<void>& object) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_) return;  // the caller's reference is the last one
      start([this] { run(); });
      queue_.push_back(std::move(object));
      ++pushed_;
    }
    changed_.notify_one();
  }

  void drain() {
    std::unique_lock<std::mutex> lock(mutex_);
    const std::uint64_t target = pushed_;
    done_.wait(lock, [&] { return destroyed_ >= target; });
  }

 private:
  void run() {
    begin_own_thread("exphil_reaper");
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;  // stopping, and nothing left
      std::vector<std::shared_ptr<void>> batch;
      batch.swap(queue_);
      lock.unlock();
      const std::uint64_t count = batch.size();
      batch.clear();
      lock.lock();
      destroyed_ += count;
      done_.notify_all();
    }
  }

  std::condition_variable done_;
  std::vector<std::shared_ptr<void>> queue_;
  std::uint64_t pushed_ = 0, destroyed_ = 0;
};

Reaper& reaper() {
  static Reaper* const instance = new Reaper;
  static StopAtUnload<Reaper> guard{instance};
  return *guard.owner;
}

}  // namespace

void reap(std::shared_ptr<void> object) noexcept {
  if (!object) return;
  try {
    reaper().push(object);
  } catch (...) {
    // No thread or no memory for the queue: `object` is destroyed here, on the calling thread.
  }
}

void drain_reaper() {
  reaper().drain();
}

}  // namespace exphil::core
