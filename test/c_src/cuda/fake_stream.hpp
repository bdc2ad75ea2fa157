// The order of a device's work in the fake driver (fake_cuda.cpp) where kernels take time: one queue for all
// its streams, which a thread runs in order. Without a delay all work runs where it is enqueued. A held
// kernel is not done before somebody waits for it, or for later work, so that it is late however slow the
// machine is. Safe from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "cuda/fake_cuda.hpp"

class FakeStream {
 public:
  // From now on every `every`-th kernel takes so long; 0: none does; kFakeHeld: it is held. Waits for the
  // work so far.
  void set_delay(std::int64_t microseconds, int every) {
    wait_for(enqueued());
    const std::lock_guard<std::mutex> lock(mutex_);
    microseconds_ = microseconds;
    every_ = every;
  }

  // The work's number, for wait_for() and done(). waits: the work waits for the host, so the thread runs it.
  std::uint64_t add(std::function<void()> work, bool kernel = false, bool waits = false) {
    std::unique_lock<std::mutex> lock(mutex_);
    std::chrono::microseconds time{0};
    bool held = false;
    if (kernel && microseconds_ != 0 && ++kernels_ % every_ == 0) {
      held = microseconds_ == kFakeHeld;
      if (!held) time = std::chrono::microseconds(microseconds_);
    }
    if (time.count() == 0 && !held && done_ == enqueued_ && !waits) {
      work();
      return done_ = ++enqueued_;
    }
    if (!started_) {
      started_ = true;
      std::thread([this] { run(); }).detach();
    }
    queue_.push_back({std::chrono::steady_clock::now() + time, held, std::move(work)});
    changed_.notify_all();
    return ++enqueued_;
  }

  std::uint64_t enqueued() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return enqueued_;
  }
  bool done(std::uint64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return done_ >= number;
  }
  void wait_for(std::uint64_t number) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (number > awaited_) awaited_ = number, changed_.notify_all();
    changed_.wait(lock, [&] { return done_ >= number; });
  }

 private:
  struct Item {
    std::chrono::steady_clock::time_point due;
    bool held;
    std::function<void()> work;
  };

  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !queue_.empty(); });
      Item item = std::move(queue_.front());
      queue_.pop_front();
      if (item.held) changed_.wait(lock, [&] { return awaited_ > done_; });
      lock.unlock();
      std::this_thread::sleep_until(item.due);
      item.work();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  std::uint64_t enqueued_ = 0, done_ = 0, awaited_ = 0;
  std::int64_t microseconds_ = 0, kernels_ = 0;
  int every_ = 1;
  bool started_ = false;
};
