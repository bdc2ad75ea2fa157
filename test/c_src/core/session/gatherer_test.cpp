// Frames of many callers in one launch: which launches there are, and that a frame has the bits, the errors
// and the order of one that its caller steps.
#include "core/session/gatherer.hpp"
#include "core/session/session_group.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/gathered.hpp"
#include "support/gathered_fleet.hpp"
#include "support/head_policy.hpp"
#include "support/numbers.hpp"

namespace exphil::core {

namespace {

using test::alone;
using test::Fleet;
using test::GatheredAnswer;
using test::kFewCores;
using test::kFrames;
using test::kManyCores;
using test::make_oracle;
using test::obs;
using test::submit;
using Out = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

}  // namespace

TEST_CASE("frames that come during a launch are the next one, with the bits of lone frames",
          "[session][gather]") {
  Fleet fleet(40, make_oracle(), GENERATE(kFewCores, kManyCores));
  fleet.launches.hold();
  std::vector<std::future<GatheredAnswer>> answers;
  answers.push_back(submit(fleet.at(0), obs(0)));
  fleet.launches.until_begun(1);
  for (std::size_t i = 1; i < 40; ++i) answers.push_back(submit(fleet.at(i), obs(i), false, false));
  fleet.launches.release();
  for (std::size_t i = 0; i < 40; ++i) {
    const GatheredAnswer answer = answers[i].get();
    CHECK(answer.frames == (i == 0 ? 1 : 39));
    const auto [out, state] = alone({i});
    CHECK(answer.out == out);
    CHECK(fleet.at(i).export_state() == state);
  }
  CHECK(fleet.launches.sizes() == std::vector<std::int64_t>{1, 39});
  const GatherCounts counts = fleet.gatherer->counts();
  CHECK(counts.frames == 40);
  CHECK(counts.launches == 2);
  CHECK(counts.most == 39);
}

TEST_CASE("a launch has a bound, and frames are launched in their order", "[session][gather]") {
  constexpr std::size_t kMost = Gatherer::kMostOnHost, kAll = 2 * kMost + 89;
  Fleet fleet(kAll, make_oracle(), GENERATE(kFewCores, kManyCores));
  fleet.launches.hold();
  std::vector<std::future<GatheredAnswer>> answers;
  answers.push_back(submit(fleet.at(0), obs(0)));
  fleet.launches.until_begun(1);
  for (std::size_t i = 1; i < kAll; ++i) answers.push_back(submit(fleet.at(i), obs(i)));
  fleet.launches.release();
  for (std::size_t i = 0; i < kAll; ++i) {
    const std::size_t launch = i == 0           ? 1
                               : i <= kMost     ? kMost
                               : i <= 2 * kMost ? kMost
                                                : kAll - 1 - 2 * kMost;
    CHECK(answers[i].get().frames == static_cast<std::int64_t>(launch));
  }
  CHECK(fleet.launches.sizes() == std::vector<std::int64_t>{1, kMost, kMost, 88});
}

TEST_CASE("a launch on a device has more frames", "[session][gather]") {
  const auto policy = make_oracle();
  policy->splits = true;
  constexpr std::size_t kMost = Gatherer::kMostOnDevice, kAll = kMost + 40;
  Fleet fleet(kAll, policy, GENERATE(kFewCores, kManyCores));
  CHECK(fleet.gatherer->most_frames() == kMost);
  fleet.launches.hold();
  std::vector<std::future<GatheredAnswer>> answers;
  answers.push_back(submit(fleet.at(0), obs(0)));
  fleet.launches.until_begun(1);
  for (std::size_t i = 1; i < kAll; ++i) answers.push_back(submit(fleet.at(i), obs(i % kFrames)));
  fleet.launches.release();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kAll; ++i) wrong += answers[i].get().out != alone({i % kFrames}).first;
  CHECK(wrong == 0);
  CHECK(fleet.launches.sizes() == std::vector<std::int64_t>{1, kMost, 39});
}

namespace {

// Its answer waits until it may end: as where the VM holds the lock of a process's scheduler.
class HeldAnswer final : public GatheredFrame {
 public:
  HeldAnswer(Session& session, std::shared_future<void> ends, std::promise<void> begins)
      : GatheredFrame(session, obs(0), false), ends_(std::move(ends)), begins_(std::move(begins)) {}
  void answer(const float*, const Action&, const GatheredLaunch&) noexcept override {
    begins_.set_value();
    ends_.wait();
  }
  void fail(const std::exception_ptr&) noexcept override {}

 private:
  std::shared_future<void> ends_;
  std::promise<void> begins_;
};

}  // namespace

TEST_CASE("on many cores an answer that takes its time holds up no launch", "[session][gather]") {
  constexpr std::size_t kLarge = 9, kRounds = 20;  // kLarge: more frames than the launching thread answers
  Fleet fleet(kLarge + 2, make_oracle(), kManyCores);
  std::promise<void> ends, begins;
  const auto begun = begins.get_future();
  fleet.launches.hold();
  std::vector<std::future<GatheredAnswer>> answers;
  answers.push_back(submit(fleet.at(0), obs(0)));
  fleet.launches.until_begun(1);
  fleet.at(1).submit(std::make_unique<HeldAnswer>(fleet.at(1), ends.get_future().share(), std::move(begins)));
  for (std::size_t i = 2; i <= kLarge; ++i) answers.push_back(submit(fleet.at(i), obs(i)));
  fleet.launches.release();
  begun.wait();
  for (std::size_t t = 0; t < kRounds; ++t) submit(fleet.at(kLarge + 1), obs(t)).get();
  ends.set_value();
  for (auto& answer : answers) answer.get();
  CHECK(fleet.launches.sizes()[1] == kLarge);
  CHECK(fleet.launches.sizes().size() == 2 + kRounds);
}

namespace {

// Frames whose owner is asked to deliver the answers around them, and what it was given.
class Owner {
 public:
  explicit Owner(bool takes) : takes_(takes) {}
  std::future<GatheredAnswer> submit(Session& session, const float* obs) {
    auto frame = std::make_unique<Frame>(*this, session, obs);
    auto future = frame->promise.get_future();
    session.submit(std::move(frame), true);
    return future;
  }
  // Until it was asked so often.
  void await(std::size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return asked_ >= count; });
  }
  std::vector<std::unique_ptr<GatheredAnswers>> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::move(given_);
  }

 private:
  struct Frame final : GatheredFrame {
    Frame(Owner& of, Session& session, const float* obs) : GatheredFrame(session, obs, false), owner(of) {}
    void answer(const float* out, const Action&, const GatheredLaunch& launch) noexcept override {
      promise.set_value({Out(out, out + test::kOracleOut), {}, launch.frames});
    }
    void fail(const std::exception_ptr& error) noexcept override { promise.set_exception(error); }
    bool pass_on(std::unique_ptr<GatheredAnswers>& answers) noexcept override {
      const std::lock_guard<std::mutex> lock(owner.mutex_);
      ++owner.asked_;
      if (owner.takes_) owner.given_.push_back(std::move(answers));
      owner.changed_.notify_all();
      return owner.takes_;
    }
    Owner& owner;
    std::promise<GatheredAnswer> promise;
  };

  const bool takes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<GatheredAnswers>> given_;
  std::size_t asked_ = 0;
};

// Sessions 1 to `count` at frames of the same numbers, each third of them from a thread of its own, in one
// launch.
std::vector<std::future<GatheredAnswer>> submit_from_threads(Fleet& fleet, Owner& owner, std::size_t count) {
  std::vector<std::future<GatheredAnswer>> answers(count);
  fleet.launches.hold();
  auto first = submit(fleet.at(0), obs(0));
  fleet.launches.until_begun(1);
  for (std::size_t third = 0; third < 3; ++third) {
    std::thread([&] {
      for (std::size_t i = third; i < count; i += 3) answers[i] = owner.submit(fleet.at(i + 1), obs(i + 1));
    }).join();
  }
  fleet.launches.release();
  first.get();
  return answers;
}

bool is_ready(const std::future<GatheredAnswer>& answer) {
  return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

TEST_CASE("the answers of many frames are passed on by the threads that they came from",
          "[session][gather]") {
  constexpr std::size_t kCount = 60;
  Fleet fleet(kCount + 1, make_oracle(), GENERATE(kFewCores, kManyCores));
  Owner owner(true);
  auto answers = submit_from_threads(fleet, owner, kCount);
  owner.await(3);
  auto given = owner.take();
  REQUIRE(given.size() == 3);
  CHECK(std::none_of(answers.begin(), answers.end(), is_ready));
  // Other launches go on meanwhile, in memory of their own.
  for (std::size_t t = 1; t <= 5; ++t) CHECK(submit(fleet.at(0), obs(t)).get().frames == 1);
  // Each has the frames of one thread. Of the last nothing is delivered but at its end.
  given[0]->deliver();
  given[0]->deliver();
  CHECK(std::count_if(answers.begin(), answers.end(), is_ready) == kCount / 3);
  std::thread([&] { given[1]->deliver(); }).join();
  CHECK(std::count_if(answers.begin(), answers.end(), is_ready) == 2 * kCount / 3);
  given.clear();
  for (std::size_t i = 0; i < kCount; ++i) {
    REQUIRE(is_ready(answers[i]));
    const GatheredAnswer answer = answers[i].get();
    CHECK(answer.frames == kCount);
    const auto [out, state] = alone({i + 1});
    CHECK(answer.out == out);
    CHECK(fleet.at(i + 1).export_state() == state);
  }
}

TEST_CASE("answers that nobody takes are delivered, and those of few frames are not passed on",
          "[session][gather]") {
  constexpr std::size_t kCount = 60, kFew = 20;
  Fleet fleet(kCount + 1, make_oracle(), GENERATE(kFewCores, kManyCores));
  Owner unwilling(false);
  auto answers = submit_from_threads(fleet, unwilling, kCount);
  for (std::size_t i = 0; i < kCount; ++i) CHECK(answers[i].get().out == alone({i + 1}).first);
  unwilling.await(3);
  Owner asked(true);
  auto few = submit_from_threads(fleet, asked, kFew);
  for (std::size_t i = 0; i < kFew; ++i) CHECK(few[i].get().out == alone({i + 1, i + 1}).first);
  CHECK(asked.take().empty());
}

TEST_CASE("a launch that fails is an error of each of its frames, and changes no state",
          "[session][gather]") {
  Fleet fleet(10, make_oracle(), GENERATE(kFewCores, kManyCores));
  for (std::size_t i = 0; i < 10; ++i) submit(fleet.at(i), obs(i)).get();
  fleet.launches.hold();
  auto before = submit(fleet.at(0), obs(20));
  fleet.launches.until_begun(11);
  std::vector<std::future<GatheredAnswer>> answers;
  for (std::size_t i = 1; i < 10; ++i) answers.push_back(submit(fleet.at(i), obs(20 + i)));
  fleet.launches.fail_number(12);
  fleet.launches.release();
  CHECK(before.get().out == alone({0, 20}).first);
  for (std::size_t i = 1; i < 10; ++i) {
    CHECK(test::error_of([&] { answers[i - 1].get(); }).kind == ErrorKind::cuda_error);
    CHECK(fleet.at(i).export_state() == alone({i}).second);
    CHECK(submit(fleet.at(i), obs(20 + i)).get().out == alone({i, 20 + i}).first);
  }
  CHECK(fleet.launches.sizes()[11] == 9);
}

TEST_CASE("other calls of a session wait for its frame, and those that may not wait say so",
          "[session][gather]") {
  Fleet fleet(2, make_oracle(), GENERATE(kFewCores, kManyCores));
  const auto kept = fleet.at(0).snapshot();
  fleet.launches.hold();
  auto answer = submit(fleet.at(0), obs(3));
  fleet.launches.until_begun(1);
  Out out(test::kOracleOut);
  CHECK_THROWS_AS(fleet.at(0).step(obs(0), out.data(), false), WouldWait);
  CHECK_THROWS_AS(fleet.at(0).restore(*kept, false), WouldWait);
  CHECK_THROWS_AS(submit(fleet.at(0), obs(0), false, false), WouldWait);
  Bytes seen;
  std::thread other([&] { seen = fleet.at(0).export_state(); });
  fleet.launches.release();
  other.join();
  CHECK(seen == alone({3}).second);
  CHECK(answer.get().out == alone({3}).first);
  fleet.at(0).restore(*kept);
  CHECK(submit(fleet.at(0), obs(5)).get().out == alone({5}).first);
}

TEST_CASE("a caller steps its frame itself while it is alone, and not in a crowd", "[session][gather]") {
  Fleet fleet(4, make_oracle(), GENERATE(kFewCores, kManyCores));
  Out out(test::kOracleOut);
  for (std::size_t t = 0; t < 5; ++t) {
    auto turn = fleet.gatherer->take_turn();
    REQUIRE(turn);
    CHECK_FALSE(fleet.gatherer->take_turn());
    fleet.at(0).step(obs(t), out.data(), false);
  }
  CHECK(out == alone({0, 1, 2, 3, 4}).first);
  std::vector<std::future<GatheredAnswer>> answers;
  {
    auto turn = fleet.gatherer->take_turn();
    REQUIRE(turn);
    for (std::size_t i = 1; i < 4; ++i) answers.push_back(submit(fleet.at(i), obs(i)));
    CHECK(fleet.launches.sizes().size() == 5);  // nobody launches beside the turn
  }
  for (auto& answer : answers) CHECK(answer.get().frames == 3);
  int frames = 0;
  while (!fleet.gatherer->take_turn()) {
    CHECK(submit(fleet.at(1), obs(0)).get().frames == 1);
    ++frames;
  }
  CHECK(frames > 1);
  CHECK(frames < 20);
  auto turn = fleet.gatherer->take_turn();
  REQUIRE(turn);
  auto waits = submit(fleet.at(2), obs(9));
  turn->give_up();
  CHECK(waits.get().out == alone({2, 9}).first);
}

TEST_CASE("a late frame of a caller that is alone is answered by the gatherer", "[session][gather]") {
  const auto policy = make_oracle();
  policy->splits = true;
  Fleet fleet(3, policy, GENERATE(kFewCores, kManyCores));
  for (const bool fails : {false, true}) {
    policy->late = true;
    policy->fails = fails;
    auto turn = fleet.gatherer->take_turn();
    REQUIRE(turn);
    Out out(test::kOracleOut);
    std::shared_ptr<LateFrame> late;
    try {
      fleet.at(0).step(obs(0), out.data(), false);
    } catch (const Late& thrown) {
      late = thrown.frame;
    }
    REQUIRE(late);
    auto frame = std::make_unique<test::AwaitedFrame>(fleet.at(0), obs(0), false);
    auto answer = frame->future();
    fleet.gatherer->finish(std::move(*turn), late, std::move(frame));
    auto behind = submit(fleet.at(1), obs(1));
    if (fails) {
      CHECK(test::error_of([&] { answer.get(); }).kind == ErrorKind::cuda_error);
      CHECK(behind.get().out == alone({1, 1}).first);
    } else {
      CHECK(answer.get().out == alone({0}).first);
      CHECK(behind.get().out == alone({1}).first);
    }
    CHECK(fleet.at(0).export_state() == alone({0}).second);
  }
  CHECK(policy->collisions == 0);
}

namespace {

// A frame that its session uses again and again, as nif/ does.
class OwnedFrame final : public GatheredFrame {
 public:
  void answer(const float* out, const Action&, const GatheredLaunch&) noexcept override {
    out_.assign(out, out + test::kOracleOut);
  }
  void fail(const std::exception_ptr&) noexcept override { out_.clear(); }
  void release() noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++released_;
    changed_.notify_all();
  }
  Out await(int released) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return released_ == released; });
    return out_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int released_ = 0;
  Out out_;
};

}  // namespace

TEST_CASE("an object is used for one frame after another, and released once for each", "[session][gather]") {
  Fleet fleet(1, make_oracle(), GENERATE(kFewCores, kManyCores));
  OwnedFrame frame;
  std::vector<std::size_t> played;
  for (std::size_t t = 0; t < 20; ++t) {
    frame.begin(fleet.at(0), obs(t), false);
    fleet.at(0).submit(GatheredFramePtr(&frame));
    played.push_back(t);
    CHECK(frame.await(static_cast<int>(t) + 1) == alone(played).first);
  }
  fleet.launches.hold();
  auto answer = submit(fleet.at(0), obs(20));
  fleet.launches.until_begun(21);
  frame.begin(fleet.at(0), obs(21), false);
  CHECK_THROWS_AS(fleet.at(0).submit(GatheredFramePtr(&frame), false), WouldWait);
  frame.await(21);
  fleet.launches.release();
  answer.get();
}

// Whoever submits the first frame beside a turn that ends, or beside a thread that goes to sleep, must not
// leave it there: this test would never end.
TEST_CASE("frames submitted beside turns that end are all launched", "[session][gather]") {
  constexpr std::size_t kThreads = 4, kRounds = 3000;
  const auto policy = make_oracle();
  const auto gatherer = std::make_shared<Gatherer>(policy, GENERATE(kFewCores, kManyCores));
  std::vector<std::unique_ptr<Session>> sessions;
  for (std::size_t i = 0; i < kThreads; ++i) {
    sessions.push_back(std::make_unique<Session>(policy, SessionOptions{}, gatherer));
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (std::size_t t = 0; t < kRounds; ++t) {
        if (t % (3 + i) == 0) {
          test::play_gathered(*sessions[i], obs(0));
        } else if (auto turn = gatherer->take_turn()) {
          turn->give_up();
        } else {
          submit(*sessions[i], obs(0)).get();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(policy->collisions == 0);
  CHECK(gatherer->counts().most <= static_cast<std::int64_t>(kThreads));
}

TEST_CASE("threads that play, save and go back in sessions that gather: every answer has its bits",
          "[session][gather]") {
  constexpr std::size_t kThreads = 6, kRounds = 150;
  const auto policy = make_oracle();
  policy->splits = true;
  const auto gatherer = std::make_shared<Gatherer>(policy, GENERATE(kFewCores, kManyCores));
  SessionOptions options;
  options.history = 3;
  std::vector<std::unique_ptr<Session>> sessions;
  for (std::size_t i = 0; i < kThreads; ++i) {
    sessions.push_back(std::make_unique<Session>(policy, options, gatherer));
  }
  Session shared(policy, options, gatherer);
  std::vector<int> wrong(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Session& own = *sessions[i];
      Session plain(make_oracle(), options);
      Out out(test::kOracleOut), right(test::kOracleOut);
      for (std::size_t t = 0; t < kRounds; ++t) {
        if (t % 7 == i) policy->late = t % 2 == 0;
        const float* frame = obs((t * kThreads + i) % kFrames);
        plain.step(frame, right.data());
        if (t % 3 == 0) {
          SessionGroup({&own}).step(frame, out.data());
        } else {
          out = test::play_gathered(own, frame).out;
        }
        if (out != right) ++wrong[i];
        test::play_gathered(shared, obs(0));
        if (t % 5 == 4) plain.roll_back(1), own.roll_back(1);
        if (t % 11 == 10) own.restore(*own.snapshot()), plain.restore(*plain.snapshot());
      }
      if (own.export_state() != plain.export_state()) ++wrong[i];
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(kThreads));
  CHECK(policy->collisions == 0);
  Session counted(make_oracle());
  Out out(test::kOracleOut);
  for (std::size_t t = 0; t < kThreads * kRounds; ++t) counted.step(obs(0), out.data());
  CHECK(shared.export_state() == counted.export_state());
}

}  // namespace exphil::core
