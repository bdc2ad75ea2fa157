#include "core/work/handover_mutex.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace exphil::core {

namespace {

using Lock = std::unique_lock<HandoverMutex>;

// Counts its runs, of which only the first unlocks.
class Unlock final : public HandoverMutex::Task {
 public:
  explicit Unlock(HandoverMutex& mutex) : mutex_(mutex) {}
  void run() noexcept override {
    const std::lock_guard<std::mutex> lock(guard_);
    if (++runs > 1) return;
    mutex_.unlock();
  }
  std::atomic<int> runs{0};

 private:
  HandoverMutex& mutex_;
  std::mutex guard_;
};

}  // namespace

TEST_CASE("a mutex that is handed over may be unlocked by another thread", "[handover_mutex]") {
  HandoverMutex mutex;
  mutex.lock();
  CHECK_FALSE(mutex.try_lock());
  std::thread([&] { mutex.unlock(); }).join();
  CHECK(mutex.try_lock());
  mutex.unlock();
}

TEST_CASE("whoever needs a mutex that was handed over runs its task", "[handover_mutex]") {
  HandoverMutex mutex;
  const auto task = std::make_shared<Unlock>(mutex);
  mutex.lock();
  mutex.hand_over(task);
  CHECK_FALSE(mutex.try_lock());
  CHECK(task->runs == 0);
  mutex.lock();
  CHECK(task->runs == 1);
  mutex.unlock();
  CHECK(task.use_count() == 1);
}

TEST_CASE("a thread that already waits runs the task too", "[handover_mutex]") {
  for (int round = 0; round < 200; ++round) {
    HandoverMutex mutex;
    const auto task = std::make_shared<Unlock>(mutex);
    mutex.lock();
    std::atomic<bool> started{false};
    std::thread waiter([&] {
      started = true;
      const Lock lock(mutex);
    });
    while (!started || round % 2 == 0) {
      std::this_thread::yield();
      if (started) break;
    }
    mutex.hand_over(task);
    waiter.join();
    CHECK(task->runs == 1);
  }
}

TEST_CASE("many threads exclude each other, with and without handing over", "[handover_mutex]") {
  HandoverMutex mutex;
  int counter = 0;  // under the mutex
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 500; ++round) {
        Lock lock(mutex, std::defer_lock);
        if (round % 3 != 0 || !lock.try_lock()) lock.lock();
        ++counter;
        if (round % 4 != i) continue;
        const auto task = std::make_shared<Unlock>(mutex);
        lock.release()->hand_over(task);
        if (round % 8 == i) task->run();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  mutex.lock();
  CHECK(counter == 2000);
  mutex.unlock();
}

}  // namespace exphil::core
