#include "core/work/parallel.hpp"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace exphil::core {

namespace {

struct RestoreThreads {
  int before = threads();
  ~RestoreThreads() { set_threads(before); }
};

}  // namespace

TEST_CASE("every index is visited once, in pieces of at least the grain", "[parallel]") {
  const RestoreThreads restore;
  for (const int count_threads : {0, 1, 2, 5}) {
    set_threads(count_threads);
    for (const std::int64_t count : {0, 1, 2, 7, 64, 1000, 4099}) {
      for (const std::int64_t grain : {0, 1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
        std::atomic<int> short_pieces{0};
        parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
          if (end - begin < grain && end != count) ++short_pieces;
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        int wrong = 0;
        for (const auto& visit : visits) wrong += visit != 1;
        CHECK(wrong == 0);
        CHECK(short_pieces == 0);
      }
    }
  }
}

TEST_CASE("small work and one thread stay in the caller", "[parallel]") {
  const RestoreThreads restore;
  const auto runs_here = [](std::int64_t count, std::int64_t grain) {
    bool here = true;
    int pieces = 0;
    const auto caller = std::this_thread::get_id();
    parallel_for(count, grain, [&](std::int64_t, std::int64_t) {
      here = here && std::this_thread::get_id() == caller;
      ++pieces;
    });
    return here && pieces == 1;
  };
  set_threads(4);
  CHECK(runs_here(100, 100));
  bool alone = false;
  std::thread([&] {
    compute_alone();
    alone = runs_here(100000, 1);
  }).join();
  CHECK(alone);
  set_threads(1);
  CHECK(threads() == 1);
  CHECK(runs_here(100000, 1));
  set_threads(0);
  CHECK(threads() >= 1);
}

TEST_CASE("a call that is spread allocates nothing of its own", "[parallel]") {
  const RestoreThreads restore;
  set_threads(2);
  std::atomic<std::int64_t> sum{0};
  const std::function<void(std::int64_t, std::int64_t)> body = [&](std::int64_t begin, std::int64_t end) {
    sum += end - begin;
  };
  parallel_for(1000, 1, body);
  const test::Allocations allocations;
  parallel_for(1000, 1, body);
  CHECK(allocations.count() == 0);
  CHECK(sum == 2000);
}

TEST_CASE("an exception of a body reaches the caller, and the threads still work", "[parallel]") {
  const RestoreThreads restore;
  set_threads(3);
  CHECK_THROWS_AS(parallel_for(1000, 1,
                               [](std::int64_t begin, std::int64_t) {
                                 if (begin > 300) throw std::out_of_range("x");
                               }),
                  std::out_of_range);
  std::atomic<std::int64_t> sum{0};
  parallel_for(1000, 1, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
  CHECK(sum == 1000);
}

TEST_CASE("threads that were woken for nothing, and for a call", "[parallel]") {
  const RestoreThreads restore;
  for (const int count_threads : {1, 2, 5}) {
    set_threads(count_threads);
    for (const int helpers : {0, 1, 3}) {
      wake_helpers(helpers);
      std::atomic<std::int64_t> visits{0};
      parallel_for(100, 1, [&](std::int64_t begin, std::int64_t end) { visits += end - begin; });
      CHECK(visits == 100);
      wake_helpers(helpers);
    }
  }
}

TEST_CASE("callers overlap, nest and change the thread count safely", "[parallel]") {
  const RestoreThreads restore;
  std::atomic<std::int64_t> total{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 50; ++round) {
        if (caller == 0) set_threads(1 + round % 4);
        parallel_for(16, 1, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            parallel_for(8, 1, [&](std::int64_t from, std::int64_t to) { total += to - from; });
          }
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(total == 4 * 50 * 16 * 8);
}

}  // namespace exphil::core
