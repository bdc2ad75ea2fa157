#include "host/simd/team.hpp"

#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace exphil::host {

namespace {

constexpr std::int64_t kPhases = 40, kCount = 101;

// Each phase reads all values that the previous phase wrote: a lane that left early would read old ones.
struct Walk {
  Team team{kPhases};
  std::vector<std::int64_t> values = std::vector<std::int64_t>(kCount, 1), next = values;
  std::vector<int> visits = std::vector<int>(kPhases * kCount, 0);

  void lane() {
    for (std::int64_t phase = 0; phase < kPhases; ++phase) {
      const bool even = phase % 2 == 0;
      const std::vector<std::int64_t>& from = even ? values : next;
      std::vector<std::int64_t>& to = even ? next : values;
      team.run(phase, kCount, 1 + phase % 7, [&](std::int64_t begin, std::int64_t end) {
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
      for (int i = 0; i < lanes; ++i) threads.emplace_back([&walk] { walk.lane(); });
      for (std::thread& thread : threads) thread.join();
      CHECK(walk.values == expected);
      CHECK(walk.visits == std::vector<int>(kPhases * kCount, 1));
    }
  }
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
