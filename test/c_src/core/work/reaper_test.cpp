#include "core/work/reaper.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace exphil::core {

namespace {

struct Traced {
  Traced(std::atomic<int>* gone, std::thread::id* where) : gone_(gone), where_(where) {}
  ~Traced() {
    if (where_ != nullptr) *where_ = std::this_thread::get_id();
    ++*gone_;
  }
  std::atomic<int>* gone_;
  std::thread::id* where_;
};

}  // namespace

TEST_CASE("a reaped object is destroyed by another thread", "[reaper]") {
  std::atomic<int> gone{0};
  std::thread::id where;
  reap(std::make_shared<Traced>(&gone, &where));
  drain_reaper();
  CHECK(gone == 1);
  CHECK(where != std::this_thread::get_id());
  reap(nullptr);
  drain_reaper();
}

TEST_CASE("many threads may reap concurrently, and a slow destructor does not block them", "[reaper]") {
  std::atomic<int> gone{0};
  std::promise<void> all_reaped;
  bool was_reaped = false;
  // Ends once the others have been reaped, or far too late, where they wait for it.
  auto slow = std::shared_ptr<int>(new int, [&, reaped = all_reaped.get_future().share()](int* value) {
    was_reaped = reaped.wait_for(std::chrono::minutes(1)) == std::future_status::ready;
    delete value;
  });
  std::vector<std::thread> threads;
  reap(std::move(slow));
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) reap(std::make_shared<Traced>(&gone, nullptr));
    });
  }
  for (std::thread& thread : threads) thread.join();
  all_reaped.set_value();
  drain_reaper();
  CHECK(was_reaped);
  CHECK(gone == 4000);
}

TEST_CASE("an object that reaps its parts while it is destroyed", "[reaper]") {
  std::atomic<int> gone{0};
  struct Owner {
    std::shared_ptr<Traced> part;
    ~Owner() { reap(std::move(part)); }
  };
  auto owner = std::make_shared<Owner>();
  owner->part = std::make_shared<Traced>(&gone, nullptr);
  reap(std::move(owner));
  drain_reaper();
  drain_reaper();
  CHECK(gone == 1);
}

}  // namespace exphil::core
