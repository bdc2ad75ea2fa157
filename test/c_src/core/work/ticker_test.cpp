#include "core/work/ticker.hpp"

#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

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

// Shared with the callback, which may still run after its ticker has ended. `done`: what the callback
// returns.
std::unique_ptr<Ticker> record(const std::shared_ptr<Seen>& seen, MicroHertz rate, Clock::time_point start,
                               bool done = false) {
  auto ticker = std::make_unique<Ticker>(
      start, rate, [seen, done](std::int64_t number) { return seen->add(number) && done; });
  ticker->ask(0);
  return ticker;
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

TEST_CASE("a ticker ends with its object, and calls once for each time it is asked", "[ticker]") {
  const auto first = std::make_shared<Seen>(), second = std::make_shared<Seen>(),
             other = std::make_shared<Seen>();
  auto ticker = record(first, 1000 * kHertz, Clock::now());
  const auto once = record(second, 1000 * kHertz, Clock::now(), true);
  const auto stays = record(other, 1000 * kHertz, Clock::now());
  REQUIRE(first->wait_for(3));
  ticker.reset();
  REQUIRE(other->wait_for(other->count() + 2));  // a call in progress has ended
  const std::size_t then = first->count();
  REQUIRE(other->wait_for(other->count() + 20));
  CHECK(first->count() == then);
  CHECK(second->count() == 1);
  once->ask(second->numbers[0] + 1);
  REQUIRE(second->wait_for(2));
  REQUIRE(other->wait_for(other->count() + 20));
  CHECK(second->count() == 2);
}

TEST_CASE("a ticker that is never asked calls nothing", "[ticker]") {
  const auto seen = std::make_shared<Seen>(), other = std::make_shared<Seen>();
  const Ticker forgotten(Clock::now() - 1s, 10'000 * kHertz,
                         [seen](std::int64_t number) { return seen->add(number); });
  const auto stays = record(other, 1000 * kHertz, Clock::now());
  REQUIRE(other->wait_for(20));
  CHECK(seen->count() == 0);
}

TEST_CASE("each tick can be asked for in turn, and none comes twice or early", "[ticker]") {
  const auto seen = std::make_shared<Seen>();
  const Clock::time_point start = Clock::now();
  const auto ticker = record(seen, 2000 * kHertz, start, true);
  for (std::size_t i = 0; i < 50; ++i) {
    REQUIRE(seen->wait_for(i + 1));
    const std::lock_guard<std::mutex> lock(seen->mutex);
    CHECK(seen->times[i] >= start + tick_offset(2000 * kHertz, seen->numbers[i]));
    if (i > 0) CHECK(seen->numbers[i] > seen->numbers[i - 1]);
    CHECK(ticker->last_due() >= seen->numbers[i]);
    ticker->ask(seen->numbers[i] + 1);
  }
}

TEST_CASE("a tick that is asked for when it is past comes at once", "[ticker]") {
  const auto seen = std::make_shared<Seen>();
  Ticker ticker(Clock::now() - 10s, kHertz, [seen](std::int64_t number) { return seen->add(number); });
  CHECK(ticker.last_due() >= 10);
  ticker.ask(3);
  REQUIRE(seen->wait_for(1));
  CHECK(seen->numbers[0] >= 10);
}

TEST_CASE("before its start no tick is due", "[ticker]") {
  CHECK(Ticker(Clock::now() + 1h, kHertz, [](std::int64_t) { return true; }).last_due() == -1);
}

TEST_CASE("the error of a rate says what was given", "[ticker]") {
  const auto error = [](double fps) { return test::error_of([&] { micro_hertz(fps, ":pace"); }); };
  CHECK(error(1e9).message == ":pace must be from 0.000001 to 10000; got 1e+09");
  CHECK(error(1e300).says("got 1e+300"));
  CHECK(error(1e-7).says("got 1e-07"));
  CHECK(error(-60).says("got -60"));
  CHECK(error(std::nan("")).argument == ":pace");
  CHECK(micro_hertz(60, "fps") == 60 * kHertz);
  CHECK(micro_hertz(1e-6, "fps") == 1);
  CHECK(micro_hertz(10'000, "fps") == kMostMicroHertz);
}

TEST_CASE("a rate outside the limits is refused", "[ticker]") {
  const auto start = [](MicroHertz rate) { Ticker(Clock::now(), rate, [](std::int64_t) { return false; }); };
  CHECK_THROWS_AS(start(0), Error);
  CHECK_THROWS_AS(start(-5), Error);
  CHECK_THROWS_AS(start(kMostMicroHertz + 1), Error);
}

}  // namespace exphil::core
