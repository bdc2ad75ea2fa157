#include "core/ticker.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "support/catch.hpp"

namespace exphil::core {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr MicroHertz kHertz = 1'000'000;

struct Seen {
  std::mutex mutex;
  std::condition_variable more;
  std::vector<std::int64_t> numbers;
  std::vector<Clock::time_point> times;

  std::size_t count() {
    const std::lock_guard<std::mutex> lock(mutex);
    return numbers.size();
  }
  bool add(std::int64_t number) {
    const std::lock_guard<std::mutex> lock(mutex);
    numbers.push_back(number), times.push_back(Clock::now());
    more.notify_all();
    return true;
  }
  bool wait_for(std::size_t count) {
    std::unique_lock<std::mutex> lock(mutex);
    return more.wait_for(lock, 10min, [&] { return numbers.size() >= count; });
  }
};

// Shared with the callback, which may still run after its ticker has ended.
std::unique_ptr<Ticker> record(const std::shared_ptr<Seen>& seen, MicroHertz rate, Clock::time_point start) {
  return std::make_unique<Ticker>(start, rate, [seen](std::int64_t number) { return seen->add(number); });
}

}  // namespace

TEST_CASE("a tick's time is computed from its number, so that nothing drifts", "[ticker]") {
  CHECK(tick_offset(60 * kHertz, 0) == 0ns);
  CHECK(tick_offset(60 * kHertz, 1) == 16'666'667ns);
  CHECK(tick_offset(60 * kHertz, 60) == 1s);
  CHECK(tick_offset(60 * kHertz, std::int64_t{60} * 3600 * 24 * 365) == 24h * 365);
  CHECK(tick_offset(59'940'060, 59'940'060) == 1'000'000s);
  CHECK(tick_offset(1, 1) == 1'000'000s);
}

TEST_CASE("ticks come in order and never early", "[ticker]") {
  const auto seen = std::make_shared<Seen>();
  const Clock::time_point start = Clock::now() + 5ms;
  const auto ticker = record(seen, 500 * kHertz, start);
  REQUIRE(seen->wait_for(20));
  const std::lock_guard<std::mutex> lock(seen->mutex);
  for (std::size_t i = 0; i < 20; ++i) {
    CHECK(seen->times[i] >= start + tick_offset(500 * kHertz, seen->numbers[i]));
    if (i > 0) CHECK(seen->numbers[i] > seen->numbers[i - 1]);
  }
}

TEST_CASE("ticks that are long past are skipped", "[ticker]") {
  const auto seen = std::make_shared<Seen>();
  const auto ticker = record(seen, 100 * kHertz, Clock::now() - 10s);
  REQUIRE(seen->wait_for(2));
  const std::lock_guard<std::mutex> lock(seen->mutex);
  CHECK(seen->numbers[0] >= 1000);
  CHECK(seen->numbers[1] > seen->numbers[0]);
}

TEST_CASE("a ticker ends with its object, or when its callback says so", "[ticker]") {
  const auto first = std::make_shared<Seen>(), second = std::make_shared<Seen>(),
             other = std::make_shared<Seen>();
  auto ticker = record(first, 1000 * kHertz, Clock::now());
  const Ticker once(Clock::now(), 1000 * kHertz,
                    [second](std::int64_t n) { return second->add(n) && false; });
  const auto stays = record(other, 1000 * kHertz, Clock::now());
  REQUIRE(first->wait_for(3));
  ticker.reset();
  REQUIRE(other->wait_for(other->count() + 2));  // a call in progress has ended
  const std::size_t then = first->count();
  REQUIRE(other->wait_for(other->count() + 20));
  CHECK(first->count() == then);
  CHECK(second->count() == 1);
}

TEST_CASE("a rate outside the limits is refused", "[ticker]") {
  const auto start = [](MicroHertz rate) { Ticker(Clock::now(), rate, [](std::int64_t) { return false; }); };
  CHECK_THROWS_AS(start(0), Error);
  CHECK_THROWS_AS(start(-5), Error);
  CHECK_THROWS_AS(start(kMostMicroHertz + 1), Error);
}

}  // namespace exphil::core
