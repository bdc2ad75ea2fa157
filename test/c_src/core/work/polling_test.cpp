#include "core/work/polling.hpp"

#include <optional>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/runnable_threads.hpp"

namespace exphil::core {

namespace {

using namespace std::chrono_literals;
using Clock = PollingPlace::Clock;
using test::RunnableThreads;

constexpr int kMany = 100'000;  // more than any machine has cores

// Asks until the answer has been no; false where it is not for minutes.
bool is_refused(PollingPlace& place) {
  const Clock::time_point begin = Clock::now();
  while (place.may_poll()) {
    if (Clock::now() - begin > 5min) return false;
    std::this_thread::sleep_for(100us);
  }
  return true;
}

}  // namespace

TEST_CASE("the system tells how many threads run, or nothing", "[polling]") {
  CHECK(runnable_threads() >= 0);
  const RunnableThreads busy(7);
  CHECK(runnable_threads() == 7);
}

TEST_CASE("a thread polls where cores are idle", "[polling]") {
  const RunnableThreads idle(0);
  PollingPlace place;
  for (int i = 0; i < 20; ++i) {
    CHECK(place.may_poll());
    std::this_thread::sleep_for(100us);
  }
  const Clock::time_point begin = Clock::now();
  CHECK(place.poll_until(begin - 1s, 1h));
  CHECK(place.poll_until(begin + 1h, 2ms));
  const Clock::time_point bounded = Clock::now();
  CHECK(bounded >= begin + 2ms);
  CHECK(bounded < begin + 30min);
  CHECK(place.poll_until(bounded + 3ms, 1h));
  CHECK(Clock::now() >= bounded + 3ms);
  CHECK(Clock::now() < begin + 30min);
}

TEST_CASE("a thread stops polling where others wait for a core", "[polling]") {
  {
    PollingPlace place;
    const RunnableThreads busy(kMany);
    CHECK(place.may_poll());  // a single answer is not believed yet
    CHECK(place.wanted());
    CHECK(is_refused(place));
    const RunnableThreads idle(0);
    CHECK_FALSE(place.may_poll());  // for good
  }
  {
    PollingPlace place;
    const RunnableThreads busy(kMany);
    const Clock::time_point begin = Clock::now();
    CHECK_FALSE(place.poll_until(begin + 1h, 1h));
    CHECK(Clock::now() < begin + 30min);
  }
  const RunnableThreads idle(0);
  PollingPlace place;
  CHECK(place.may_poll());
  CHECK_FALSE(place.wanted());
}

TEST_CASE("busy cores between idle ones, for less than four looks in turn, end no polling", "[polling]") {
  PollingPlace place;
  for (int i = 0; i < 20; ++i) {
    const RunnableThreads runnable(i % 4 == 3 ? 0 : kMany);
    CHECK(place.may_poll());
    CHECK(place.wanted() == (i % 4 != 3));
    std::this_thread::sleep_for(100us);
  }
}

TEST_CASE("a companion of a thread that polls wants no core", "[polling]") {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  // The answer to a look of this place while so many threads run.
  const auto is_wanted = [](PollingPlace& place, int threads) {
    const RunnableThreads runnable(threads);
    std::this_thread::sleep_for(100us);
    CHECK(place.may_poll());
    return place.wanted();
  };
  {
    PollingPlace place;
    CHECK(is_wanted(place, cores + 1));
    place.add_companion();
    place.add_companion();  // counts once
    CHECK_FALSE(is_wanted(place, cores + 1));
    CHECK(is_wanted(place, cores + 2));
  }
  PollingPlace place;  // the companion went with the first
  CHECK(is_wanted(place, cores + 1));
}

TEST_CASE("at most one thread less than there are cores polls", "[polling]") {
  const RunnableThreads idle(0);
  const unsigned most = std::max(1u, std::thread::hardware_concurrency() - 1);
  std::vector<std::optional<PollingPlace>> places(most);
  for (auto& place : places) {
    place.emplace();
    CHECK(place->may_poll());
  }
  CHECK_FALSE(PollingPlace().may_poll());
  places.back().reset();
  CHECK(PollingPlace().may_poll());
  PollingPlace last;
  CHECK(last.may_poll());
  CHECK_FALSE(PollingPlace().may_poll());
}

TEST_CASE("cores are wanted where more threads run than there are, without those that poll", "[polling]") {
  const auto wanted_among = [](int threads) {
    const RunnableThreads running(threads);
    std::this_thread::sleep_for(1ms);  // longer than an answer is kept
    return cores_are_wanted();
  };
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  CHECK_FALSE(wanted_among(0));
  CHECK_FALSE(wanted_among(cores));
  CHECK(wanted_among(cores + 1));
  const PollingPlace place;
  CHECK_FALSE(wanted_among(cores + 1));
  CHECK(wanted_among(cores + 2));
}

TEST_CASE("a thread polls half of the time at most", "[polling]") {
  PollingShare share;
  Clock::time_point now = Clock::now() + 1s;
  Clock::duration polled{0};
  for (int frame = 0; frame < 10'000; ++frame, now += 10ms) {
    if (!share.allows(now)) continue;
    share.spent(8ms);
    polled += 8ms;
  }
  CHECK(polled > 48s);
  CHECK(polled < 51s);
}

}  // namespace exphil::core
