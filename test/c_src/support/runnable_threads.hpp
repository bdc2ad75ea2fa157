// While it exists, the library takes the machine for one where so many threads run or wait for a core. One at
// a time.
#pragma once

#include <atomic>

#include "core/work/polling.hpp"

namespace exphil::test {

class RunnableThreads {
 public:
  explicit RunnableThreads(int count) {
    threads = count;
    core::set_runnable_threads([] { return threads.load(); });
  }
  ~RunnableThreads() { core::set_runnable_threads(nullptr); }
  RunnableThreads(const RunnableThreads&) = delete;
  RunnableThreads& operator=(const RunnableThreads&) = delete;

 private:
  static inline std::atomic<int> threads{0};
};

}  // namespace exphil::test
