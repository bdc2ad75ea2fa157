// Launches of a gatherer beside each other: which begin while another one is under way, and that neither
// touches the frames of the other.
#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "core/session/gatherer.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/gathered.hpp"
#include "support/gathered_fleet.hpp"

namespace exphil::core {
namespace {

using test::alone;
using test::Fleet;
using test::GatheredAnswer;
using test::kFewCores;
using test::kFrames;
using test::kManyCores;
using test::obs;
using test::submit;
using Answers = std::vector<std::future<GatheredAnswer>>;
using Sizes = std::vector<std::int64_t>;

constexpr std::size_t kMost = Gatherer::kMostOnDevice;

std::shared_ptr<test::OracleModel> make_device(int at_once = 2) {
  auto policy = test::make_oracle();
  policy->splits = true, policy->at_once = at_once;
  return policy;
}

// Sessions `first` and up, each a frame of its own number.
Answers submit_frames(Fleet& fleet, std::size_t first, std::size_t count) {
  Answers answers;
  for (std::size_t i = first; i < first + count; ++i) {
    answers.push_back(submit(fleet.at(i), obs(i % kFrames)));
  }
  return answers;
}

// A launch of one frame is under way, and `count` frames wait for it.
Answers begin_with_waiting(Fleet& fleet, std::size_t count) {
  fleet.launches.hold();
  Answers answers = submit_frames(fleet, 0, 1);
  fleet.launches.until_begun(1);
  for (auto& answer : submit_frames(fleet, 1, count)) answers.push_back(std::move(answer));
  return answers;
}

std::size_t wrong_of(Fleet& fleet, Answers& answers) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto [out, state] = alone({i % kFrames});
    wrong += answers[i].get().out != out || fleet.at(i).export_state() != state;
  }
  return wrong;
}

Sizes sorted(Sizes sizes) {
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

// So many frames in a launch that takes milliseconds: others need not wait for such launches from now on,
// also after some that have one frame.
void play_long_launch(Fleet& fleet, std::size_t count) {
  Answers answers = begin_with_waiting(fleet, count);
  fleet.launches.let(1);
  fleet.launches.until_begun(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  fleet.launches.release();
  for (auto& answer : answers) answer.get();
}

}  // namespace

TEST_CASE("a full launch that leaves frames has the next one beside it, and no third one",
          "[session][gather]") {
  Fleet fleet(2 * kMost + 31, make_device(), kManyCores);
  CHECK(fleet.gatherer->at_once() == 2);
  CHECK(fleet.policy->reserved_at_once == 2);
  Answers answers = begin_with_waiting(fleet, 2 * kMost + 30);
  CHECK(fleet.launches.sizes() == Sizes{1});  // beside few frames there is none
  fleet.launches.let(1);
  fleet.launches.until_begun(3);
  CHECK(fleet.launches.sizes() == Sizes{1, kMost, kMost});
  fleet.launches.release();
  CHECK(wrong_of(fleet, answers) == 0);
  CHECK(fleet.launches.sizes() == Sizes{1, kMost, kMost, 30});
  CHECK(fleet.policy->most_advancing == 2);
  const GatherCounts counts = fleet.gatherer->counts();
  CHECK(counts.frames == 2 * kMost + 31);
  CHECK(counts.launches == 4);
}

TEST_CASE("frames do not wait for a launch that takes longer than the pause", "[session][gather]") {
  constexpr std::size_t kCount = 80;
  Fleet fleet(kCount + 4, make_device(), kManyCores);
  play_long_launch(fleet, kCount);
  fleet.launches.hold();
  Answers answers;
  for (std::size_t i = 1; i <= 2; ++i) {  // sessions that have not played yet
    answers.push_back(submit(fleet.at(kCount + i), obs(i)));
    fleet.launches.until_begun(2 + i);
  }
  answers.push_back(submit(fleet.at(kCount + 3), obs(3)));
  CHECK(fleet.launches.sizes().size() == 4);
  fleet.launches.release();
  for (std::size_t i = 1; i <= 3; ++i) {
    const GatheredAnswer answer = answers[i - 1].get();
    CHECK(answer.frames == 1);
    CHECK(answer.out == alone({i}).first);
  }
  CHECK(fleet.policy->most_advancing == 2);
}

TEST_CASE("a launch that fails leaves the frames of the one beside it alone", "[session][gather]") {
  constexpr std::size_t kRest = 40;
  const bool first_fails = GENERATE(true, false);
  Fleet fleet(kMost + kRest + 1, make_device(), kManyCores);
  Answers answers = begin_with_waiting(fleet, kMost + kRest);
  fleet.launches.fail_agents(first_fails ? kMost : kRest);
  fleet.launches.let(1);
  fleet.launches.until_begun(3);
  fleet.launches.release();
  std::size_t wrong = 0, failed = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const bool in_first = i >= 1 && i <= kMost, in_rest = i > kMost;
    if (first_fails ? in_first : in_rest) {
      failed += test::error_of([&] { answers[i].get(); }).kind == ErrorKind::cuda_error;
      wrong += fleet.at(i).export_state() != alone({}).second;
      fleet.launches.fail_agents(0);
      wrong += submit(fleet.at(i), obs(i % kFrames)).get().out != alone({i % kFrames}).first;
    } else {
      wrong += answers[i].get().out != alone({i % kFrames}).first;
    }
  }
  CHECK(wrong == 0);
  CHECK(failed == (first_fails ? kMost : kRest));
}

TEST_CASE("there is one launch at a time on few cores, on the host, and of a policy that has no use for two",
          "[session][gather]") {
  const int which = GENERATE(0, 1, 2);
  const auto policy = make_device(which == 2 ? 1 : 2);
  policy->splits = which != 1;
  Fleet fleet(kMost + 301, policy, which == 0 ? kFewCores : kManyCores);
  CHECK(fleet.gatherer->at_once() == 1);
  CHECK(policy->reserved_at_once == 1);
  Answers answers = begin_with_waiting(fleet, kMost + 300);
  fleet.launches.let(1);
  fleet.launches.until_begun(2);
  fleet.launches.release();
  CHECK(wrong_of(fleet, answers) == 0);
  CHECK(policy->most_advancing == 1);
  const auto most = static_cast<std::int64_t>(fleet.gatherer->most_frames());
  CHECK(fleet.launches.sizes()[1] == most);
  CHECK(sorted(fleet.launches.sizes()).back() == most);
}

TEST_CASE("no launch begins beside a caller that steps its frame itself", "[session][gather]") {
  constexpr std::size_t kCount = 300;
  Fleet fleet(kCount + 1, make_device(), kManyCores);
  play_long_launch(fleet, kCount);
  std::size_t frames = 0;
  while (!fleet.gatherer->take_turn()) {
    submit(fleet.at(0), obs(0)).get();
    ++frames;
  }
  CHECK(frames < 20);
  auto turn = fleet.gatherer->take_turn();
  REQUIRE(turn);
  const std::size_t launches = fleet.launches.sizes().size();
  CHECK_FALSE(fleet.gatherer->take_turn());
  Answers answers;
  for (std::size_t i = 1; i <= 3; ++i) answers.push_back(submit(fleet.at(i), obs(7)));
  CHECK(fleet.launches.sizes().size() == launches);
  turn.reset();
  for (std::size_t i = 1; i <= 3; ++i) CHECK(answers[i - 1].get().out == alone({i, 7}).first);
}

TEST_CASE("frames beside launches that take long: each session's are in their order", "[session][gather]") {
  constexpr std::size_t kThreads = 4, kEach = 20, kRounds = 25, kAll = kThreads * kEach;
  Fleet fleet(kAll + 1, make_device(), kManyCores);
  play_long_launch(fleet, kAll);
  const auto hook = fleet.policy->on_advance;
  fleet.policy->on_advance = [&](std::int64_t agents) {
    hook(agents);
    std::this_thread::sleep_for(std::chrono::microseconds(300));  // as a device
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (std::size_t t = 0; t < kRounds; ++t) {
        Answers answers;
        for (std::size_t k = 0; k < kEach; ++k) {
          const std::size_t at = 1 + i * kEach + k;
          if (t % 5 == 4) {
            test::play_gathered(fleet.at(at), obs(at + t));
          } else {
            answers.push_back(submit(fleet.at(at), obs(at + t)));
          }
        }
        for (auto& answer : answers) answer.get();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::size_t wrong = 0;
  for (std::size_t at = 1; at <= kAll; ++at) {
    std::vector<std::size_t> played = {at};
    for (std::size_t t = 0; t < kRounds; ++t) played.push_back(at + t);
    wrong += fleet.at(at).export_state() != alone(played).second;
  }
  CHECK(wrong == 0);
  CHECK(fleet.policy->collisions == 0);
  CHECK(fleet.policy->most_advancing <= 2);
}

TEST_CASE("a gatherer ends as soon as its last frames are answered", "[session][gather]") {
  for (int round = 0; round < 100; ++round) {
    Fleet fleet(3, make_device(), kManyCores);
    Answers answers = submit_frames(fleet, 0, 3);
    for (auto& answer : answers) answer.get();
  }
  Fleet fleet(kMost + 41, make_device(), kManyCores);
  Answers answers = begin_with_waiting(fleet, kMost + 40);
  fleet.launches.let(1);
  fleet.launches.until_begun(3);
  std::thread ends([&] {  // sessions end when their frames are answered, in either launch
    for (auto& answer : answers) answer.get();
    fleet.sessions.clear();
  });
  fleet.launches.release();
  ends.join();
}

}  // namespace exphil::core
