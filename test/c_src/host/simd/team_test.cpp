#include "host/simd/team.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "host/simd/shared_pass.hpp"
#include "support/catch.hpp"

namespace exphil::host {

namespace {

constexpr std::int64_t kPhases = 40, kCount = 101;

// Each phase reads all values that the previous phase wrote: a lane that left early would read old ones.
struct Walk {
  Team team{kPhases};
  std::vector<std::int64_t> values = std::vector<std::int64_t>(kCount, 1), next = values;
  std::vector<int> visits = std::vector<int>(kPhases * kCount, 0);

  void lane(int side = 0) {
    for (std::int64_t phase = 0; phase < kPhases; ++phase) {
      const bool even = phase % 2 == 0;
      const std::vector<std::int64_t>& from = even ? values : next;
      std::vector<std::int64_t>& to = even ? next : values;
      team.run(phase, side, kCount, 1 + phase % 7, [&](std::int64_t begin, std::int64_t end) {
        std::int64_t sum = 0;
        for (const std::int64_t value : from) sum += value;
        for (std::int64_t i = begin; i < end; ++i) {
          to[static_cast<std::size_t>(i)] = sum % 1000 + i;
          ++visits[static_cast<std::size_t>(phase * kCount + i)];
        }
      });
    }
  }
};

std::vector<std::int64_t> alone() {
  Walk walk;
  walk.team.begin();
  walk.lane();
  return walk.values;
}

}  // namespace

TEST_CASE("a team's lanes do every piece once and wait for each other", "[host][team]") {
  const std::vector<std::int64_t> expected = alone();
  for (int round = 0; round < 20; ++round) {
    for (const int lanes : {1, 2, 3, 5}) {
      Walk walk;
      walk.team.begin();
      std::vector<std::thread> threads;
      for (int i = 0; i < lanes; ++i) threads.emplace_back([&walk, i] { walk.lane(i % 2); });
      for (std::thread& thread : threads) thread.join();
      CHECK(walk.values == expected);
      CHECK(walk.visits == std::vector<int>(kPhases * kCount, 1));
    }
  }
}

TEST_CASE("one side of a team claims from the first piece on, the other from the last one back",
          "[host][team]") {
  for (const int side : {0, 1}) {
    Team team(1);
    team.begin();
    std::vector<std::int64_t> begins;
    team.run(0, side, 10, 4, [&](std::int64_t begin, std::int64_t end) {
      begins.push_back(begin);
      CHECK(end == std::min<std::int64_t>(10, begin + 4));
    });
    CHECK(begins == (side == 0 ? std::vector<std::int64_t>{0, 4, 8} : std::vector<std::int64_t>{8, 4, 0}));
  }
}

TEST_CASE("a thread that waits takes part in a pass, and only while it is open", "[host][team]") {
  SharedPass pass;
  CHECK(!pass.has_helper());
  CHECK(!pass.help(std::chrono::nanoseconds(0)));  // none is open
  for (int round = 0; round < 100; ++round) {
    Walk walk;
    walk.team.begin();
    std::atomic<int> lanes{0}, inside{0}, others{0};
    pass.await(1);
    CHECK(pass.has_helper());
    std::thread helper([&pass] { pass.help(std::chrono::hours(1)); });
    REQUIRE(pass.run([&] {
      inside.fetch_add(1);
      // The caller waits for the helper, so that both take part in every round.
      const int side = lanes.fetch_add(1);
      while (lanes.load() < 2) std::this_thread::yield();
      if (pass.run([] {})) others.fetch_add(1);  // not while this one is shared
      walk.lane(side);
      inside.fetch_sub(1);
    }));
    CHECK(inside.load() == 0);
    CHECK(others.load() == 0);
    helper.join();
    pass.await(-1);
    CHECK(walk.visits == std::vector<int>(kPhases * kCount, 1));
  }
  CHECK(!pass.has_helper());
}

TEST_CASE("a thread that comes again while a pass is open takes part in it once", "[host][team]") {
  SharedPass pass;
  std::atomic<int> lanes{0};
  std::atomic<bool> first{false}, again{true}, asked{false};
  std::thread helper([&] {
    first = pass.help(std::chrono::hours(1));
    again = pass.help(std::chrono::nanoseconds(0));
    asked = true;
  });
  const std::thread::id caller = std::this_thread::get_id();
  REQUIRE(pass.run([&] {
    lanes.fetch_add(1);
    while (std::this_thread::get_id() == caller && !asked) std::this_thread::yield();
  }));
  helper.join();
  CHECK(first);
  CHECK_FALSE(again);
  CHECK(lanes == 2);
}

TEST_CASE("a lane that comes late finds nothing to do", "[host][team]") {
  Walk walk;
  walk.team.begin();
  walk.lane();
  const std::vector<std::int64_t> finished = walk.values;
  walk.lane();
  CHECK(walk.values == finished);
  CHECK(walk.visits == std::vector<int>(kPhases * kCount, 1));
  // The next pass starts from the beginning.
  walk.values.assign(kCount, 1);
  walk.team.begin();
  walk.lane();
  CHECK(walk.values == finished);
}

}  // namespace exphil::host
