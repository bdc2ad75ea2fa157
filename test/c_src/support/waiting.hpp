// What tests of threads wait for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace exphil::test {

// Opens once, for every thread that waits.
class Gate {
 public:
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// True once `done` is; false where it is not for minutes.
template <class Done>
bool eventually(const Done& done) {
  for (int i = 0; i < 600'000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace exphil::test
