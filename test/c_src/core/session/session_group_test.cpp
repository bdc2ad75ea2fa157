// Groups of one model on one device: the bits of separate steps, what is refused and when, and calls of many
// threads. Those over several devices are in replicas_test.cpp, with windows in window_session_test.cpp.
#include "core/session/session_group.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <thread>

#include "core/session/session.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/numbers.hpp"
#include "support/oracle_policy.hpp"

namespace exphil::core {

namespace {

using test::CaughtError;
using test::error_of;
using test::make_oracle;
using test::OracleModel;

using Out = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

// Sessions of a policy; every third has a history.
struct GroupAgents {
  GroupAgents(const std::shared_ptr<OracleModel>& policy, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      SessionOptions options;
      options.history = i % 3 == 0 ? 3 : 0;
      own.push_back(std::make_unique<Session>(policy, options));
      all.push_back(own.back().get());
    }
  }
  Out step_each(const float* obs) {
    Out out(all.size() * test::kOracleOut);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i]->step(obs + i * test::kOracleIn, out.data() + i * test::kOracleOut);
    return out;
  }
  std::vector<Bytes> states() const {
    std::vector<Bytes> bytes;
    for (Session* session : all) bytes.push_back(session->export_state());
    return bytes;
  }
  std::vector<std::unique_ptr<Session>> own;
  std::vector<Session*> all;
};

Out step(SessionGroup& group, const float* obs) {
  Out out(group.size() * test::kOracleOut);
  group.step(obs, out.data());
  return out;
}

// As a list that is probably that group.
Out step_guessed(SessionGroup& group, const float* obs, bool is_right = true) {
  Out out(group.size() * test::kOracleOut);
  if (!group.step_if([=] { return is_right; }, obs, out.data())) group.step(obs, out.data());
  return out;
}

}  // namespace

TEST_CASE("a group of one call is the separate steps, bit for bit, in the caller's order",
          "[session][group]") {
  const auto frames = test::Random(5).vector(8 * test::kOracleIn, -1, 1);
  const auto policy = make_oracle();
  GroupAgents batched(policy, 8), separate(policy, 8);
  batched.step_each(frames.data());
  separate.step_each(frames.data());
  std::vector<Session*> order, order_of_separate;
  for (const std::size_t i : {3u, 0u, 7u, 5u, 1u, 6u, 2u, 4u}) {
    order.push_back(batched.all[i]);
    order_of_separate.push_back(separate.all[i]);
  }
  SessionGroup group(order);
  const Out out = step(group, frames.data());
  separate.all = order_of_separate;
  CHECK(out == separate.step_each(frames.data()));
  batched.all = order;
  CHECK(batched.states() == separate.states());
}

// What else is done with the sessions between two calls is done with those of the other group too.
TEST_CASE("a group of many calls has the bits of separate steps, whatever its sessions do meanwhile",
          "[session][group]") {
  constexpr std::size_t kAgents = 7, kFrames = 60;
  const auto frames = test::Random(8).vector(kAgents * kFrames * test::kOracleIn, -1, 1);
  const auto policy = make_oracle();
  GroupAgents grouped(policy, kAgents), separate(policy, kAgents);
  SessionGroup group(grouped.all), backwards({grouped.all.rbegin(), grouped.all.rend()});
  SessionGroup some({grouped.all[5], grouped.all[0]});
  group.keep();
  some.keep();
  const auto kept = grouped.all[2]->snapshot();
  Out out(3 * test::kOracleOut), right(3 * test::kOracleOut);
  for (std::size_t t = 0; t < kFrames; ++t) {
    INFO("frame " << t);
    const float* const obs = frames.data() + t * kAgents * test::kOracleIn;
    CHECK(step(group, obs) == separate.step_each(obs));
    const std::size_t one = t % kAgents;
    for (GroupAgents* agents : {&grouped, &separate}) {
      Out& lone = agents == &grouped ? out : right;
      if (t % 2 == 0) agents->all[one]->step(obs, lone.data());
      if (t % 5 == 4) agents->all[3]->roll_back(2);
      if (t % 7 == 0) agents->all[6]->resimulate(1, obs, 3, lone.data());
      if (t % 11 == 0) agents->all[2]->restore(*kept);
      if (t % 13 == 0) agents->all[0]->prefill(obs, 2, lone.data());
    }
    CHECK(out == right);
    if (t % 3 == 0) {
      Out expected(2 * test::kOracleOut);
      separate.all[5]->step(obs, expected.data());
      separate.all[0]->step(obs + test::kOracleIn, expected.data() + test::kOracleOut);
      CHECK(step(some, obs) == expected);
    }
    if (t % 4 == 0) {
      step(backwards, obs);
      std::reverse(separate.all.begin(), separate.all.end());
      separate.step_each(obs);
      std::reverse(separate.all.begin(), separate.all.end());
    }
    REQUIRE(grouped.states() == separate.states());
  }
}

TEST_CASE("what no group can be is refused, and changes nothing", "[session][group]") {
  const auto frames = test::Random(4).vector(2 * test::kOracleIn, -1, 1);
  const auto policy = make_oracle(1);
  Session one(policy), another(policy), other(make_oracle(2));
  Out out(2 * test::kOracleOut);
  one.step(frames.data(), out.data());
  const Bytes before = one.export_state();

  CHECK(error_of([] { const SessionGroup none({}); }).says("must not be empty"));
  const CaughtError mixed = error_of([&] { const SessionGroup group({&one, &another, &other}); });
  CHECK(mixed.kind == ErrorKind::mismatch);
  CHECK(mixed.says("session 2 is of another policy"));

  SessionGroup twice({&one, &another, &one});
  const auto step_twice = [&] { twice.step(frames.data(), out.data()); };
  for (const CaughtError& error : {error_of([&] { twice.keep(); }), error_of(step_twice)}) {
    CHECK(error.kind == ErrorKind::invalid_argument);
    CHECK(error.argument == "sessions");
    CHECK(error.says("twice"));
  }
  SessionGroup group({&one, &another});
  CHECK(error_of([&] { group.act(frames.data(), out.data()); }).kind == ErrorKind::unsupported);
  auto broken = frames;
  broken.back() = std::numeric_limits<float>::infinity();
  CHECK(error_of([&] { group.step(broken.data(), out.data()); }).argument == "obs");
  policy->on_advance = [](std::int64_t) { fail(ErrorKind::device_lost, "", "lost"); };
  CHECK(error_of([&] { group.step(frames.data(), out.data()); }).kind == ErrorKind::device_lost);
  policy->on_advance = nullptr;
  CHECK(one.export_state() == before);
  CHECK(another.export_state() == Session(policy).export_state());
  CHECK_NOTHROW(group.step(frames.data(), out.data()));  // no error left a session locked
}

// Every frame is the same, so that a session's state is that of as many steps, whoever played them.
TEST_CASE("calls of many threads on one group, on others of its sessions and on these lose no frame",
          "[session][group]") {
  constexpr std::size_t kAgents = 6, kRounds = 150;
  const auto policy = make_oracle();
  policy->guesses = GENERATE(false, true);
  GroupAgents agents(policy, kAgents), alone(policy, 1);
  const auto frame = test::Random(6).vector(test::kOracleIn, -1, 1);
  Out frames;
  for (std::size_t i = 0; i < kAgents; ++i) frames.insert(frames.end(), frame.begin(), frame.end());
  SessionGroup group(agents.all), backwards({agents.all.rbegin(), agents.all.rend()});
  group.keep();
  backwards.keep();
  const std::vector<std::function<void()>> players = {
      [&] { step(group, frames.data()); },
      [&] { step(group, frames.data()); },
      [&] { step(backwards, frames.data()); },
      [&] {
        SessionGroup now(
            {agents.all[4], agents.all[1], agents.all[0], agents.all[5], agents.all[2], agents.all[3]});
        step(now, frames.data());
      },
      [&] { agents.step_each(frames.data()); },
      [&] { step_guessed(group, frames.data()); },
      [&] { step_guessed(backwards, frames.data(), false); },
  };
  std::vector<std::thread> threads;
  for (const auto& play : players) {
    threads.emplace_back([&play] {
      for (std::size_t round = 0; round < kRounds; ++round) play();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(policy->collisions == 0);
  for (std::size_t i = 0; i < players.size() * kRounds; ++i) alone.step_each(frame.data());
  for (const Bytes& state : agents.states()) CHECK(state == alone.states()[0]);
}

// What is done with a session alone ends the group's claim, without which it does not begin before it knows.
TEST_CASE("a group that a call is probably of has the bits of separate steps", "[session][group]") {
  constexpr std::size_t kAgents = 7, kFrames = 60;
  const auto frames = test::Random(9).vector(kAgents * kFrames * test::kOracleIn, -1, 1);
  const auto policy = make_oracle();
  policy->guesses = true;
  GroupAgents grouped(policy, kAgents), separate(policy, kAgents);
  SessionGroup group(grouped.all);
  group.keep();
  for (std::size_t t = 0; t < kFrames; ++t) {
    INFO("frame " << t);
    const float* const obs = frames.data() + t * kAgents * test::kOracleIn;
    CHECK(step_guessed(group, obs, t % 3 != 0) == separate.step_each(obs));
    Out lone(test::kOracleOut);
    for (GroupAgents* agents : {&grouped, &separate}) {
      if (t % 20 == 19) agents->all[t % kAgents]->step(obs, lone.data());
      if (t % 20 == 9) agents->all[3]->roll_back(1);
    }
    if (t % 20 == 19) REQUIRE(grouped.states() == separate.states());
  }
  // The more often a claim was ended, the later a new one is made.
  CHECK(policy->right_guesses > 10);
  CHECK(policy->wrong_guesses > 5);
  CHECK(policy->right_guesses < 40);
}

// A kept group of some agents of a policy that guesses, and a frame of each.
struct GuessedGroup {
  explicit GuessedGroup(unsigned seed)
      : frames(test::Random(seed).vector(kAgents * test::kOracleIn, -1, 1)),
        policy(make_oracle()),
        agents(policy, kAgents),
        group(agents.all),
        out(kAgents * test::kOracleOut) {
    policy->guesses = true;
    group.keep();
  }
  bool step_if(const SessionGroup::IsRight& is_right) {
    return group.step_if(is_right, frames.data(), out.data());
  }
  // So often that it has its claim.
  void play() {
    for (int call = 0; call < kCalls; ++call) step(group, frames.data());
  }
  static constexpr std::size_t kAgents = 3;
  static constexpr int kCalls = 3;
  const Out frames;
  const std::shared_ptr<OracleModel> policy;
  GroupAgents agents;
  SessionGroup group;
  Out out;
};

TEST_CASE("a group that a call is not of changes nothing, nor what fails before that is known",
          "[session][group]") {
  GuessedGroup guessed(10);
  GroupAgents same(guessed.policy, GuessedGroup::kAgents);
  SessionGroup new_group(guessed.agents.all);
  const float* const frames = guessed.frames.data();
  bool asked = false;
  const auto is_right = [&] { return asked = true; };
  CHECK_FALSE(new_group.step_if(is_right, frames, guessed.out.data()));  // it is not kept
  CHECK_FALSE(guessed.step_if(is_right));                                // and has no claim
  CHECK_FALSE(asked);
  guessed.play();
  for (int call = 0; call < GuessedGroup::kCalls; ++call) same.step_each(frames);
  CHECK_FALSE(guessed.step_if([] { return false; }));
  const auto act = [&] { guessed.group.act_if(is_right, frames, guessed.out.data()); };
  CHECK(error_of(act).kind == ErrorKind::unsupported);
  const auto fails = []() -> bool { fail(ErrorKind::mismatch, "sessions", "another model's"); };
  CHECK(error_of([&] { guessed.step_if(fails); }).kind == ErrorKind::mismatch);
  guessed.policy->on_advance = [](std::int64_t) { fail(ErrorKind::device_lost, "", "lost"); };
  CHECK(error_of([&] { guessed.step_if(is_right); }).kind == ErrorKind::device_lost);
  guessed.policy->on_advance = nullptr;
  CHECK(guessed.policy->wrong_guesses == 1);
  // Nothing was left locked, and reading the states ended the claim.
  CHECK(guessed.agents.states() == same.states());
  CHECK_FALSE(guessed.step_if(is_right));
}

// Its sessions may end at any time; a call that has begun holds up their end.
TEST_CASE("a group whose sessions have ended, or end meanwhile, is no guess", "[session][group]") {
  GuessedGroup guessed(11);
  guessed.play();
  std::atomic<bool> ends{false}, ended{false};
  std::thread end;
  const auto is_right = [&] {
    end = std::thread([&] {
      ends = true;
      guessed.agents.own[1].reset();
      ended = true;
    });
    while (!ends) std::this_thread::sleep_for(std::chrono::microseconds(20));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK_FALSE(ended);
    return true;
  };
  CHECK(guessed.step_if(is_right));
  end.join();
  CHECK_FALSE(guessed.step_if([] { return true; }));
  guessed.agents.own.clear();
  CHECK_FALSE(guessed.step_if([] { return true; }));
  CHECK(guessed.policy->right_guesses == 1);
}

// A group that nobody disturbs has one mutex for all of its sessions; each lone step ends that.
TEST_CASE("a group's claim to its sessions and their lone steps lose no frame", "[session][group]") {
  constexpr std::size_t kAgents = 6, kRounds = 400, kLone = 25;
  const auto policy = make_oracle();
  policy->guesses = GENERATE(false, true);
  GroupAgents agents(policy, kAgents), alone(policy, 1);
  const auto frame = test::Random(7).vector(test::kOracleIn, -1, 1);
  Out frames;
  for (std::size_t i = 0; i < kAgents; ++i) frames.insert(frames.end(), frame.begin(), frame.end());
  SessionGroup group(agents.all), half({agents.all[3], agents.all[1], agents.all[5]});
  group.keep();
  half.keep();
  std::atomic<std::size_t> played{0};
  const auto play_group = [&] {
    for (std::size_t round = 0; round < kRounds; ++round, ++played) step_guessed(group, frames.data());
  };
  // Again and again after some calls of the group, each time one session more.
  const auto play_alone = [&] {
    for (std::size_t round = 0; round < kLone; ++round) {
      while (played < round * (2 * kRounds / kLone))
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      if (round % 5 == 4) {
        step(half, frames.data());
      } else {
        Out out(test::kOracleOut);
        agents.all[round % kAgents]->step(frame.data(), out.data());
      }
    }
  };
  std::vector<std::thread> threads;
  for (const std::function<void()>& play :
       {std::function<void()>(play_group), std::function<void()>(play_group),
        std::function<void()>(play_alone)})
    threads.emplace_back(play);
  for (std::thread& thread : threads) thread.join();
  CHECK(policy->collisions == 0);
  for (std::size_t agent = 0; agent < kAgents; ++agent) {
    std::size_t frames_of = 2 * kRounds;
    for (std::size_t round = 0; round < kLone; ++round) {
      if (round % 5 == 4)
        frames_of += agent == 1 || agent == 3 || agent == 5;
      else
        frames_of += round % kAgents == agent;
    }
    GroupAgents same(policy, 1);
    for (std::size_t i = 0; i < frames_of; ++i) same.step_each(frame.data());
    CHECK(agents.states()[agent] == same.states()[0]);
  }
}

TEST_CASE("a claim is ended by who locks a session by itself, who waits for the group", "[session][group]") {
  const auto claim = std::make_shared<GroupClaim>();
  SessionMutex one, another;
  CHECK_FALSE(claim->enter().owns_lock());
  const auto claim_both = [&] {
    for (SessionMutex* mutex : {&one, &another}) {
      mutex->lock();
      mutex->claim(claim);
    }
    claim->complete();
    one.unlock(), another.unlock();
  };
  claim_both();
  auto entered = claim->enter();
  REQUIRE(entered.owns_lock());
  // The group has both, although neither is locked.
  CHECK_FALSE(one.try_lock());
  std::atomic<bool> locked{false};
  std::thread lone([&] {
    one.lock();
    locked = true;
    one.unlock();
  });
  CHECK_FALSE(another.try_lock());
  CHECK_FALSE(locked);
  entered.unlock();
  lone.join();
  CHECK(locked);
  CHECK_FALSE(claim->enter().owns_lock());
  CHECK(one.try_lock());
  CHECK(another.try_lock());
  one.unlock(), another.unlock();
  claim_both();
  CHECK(another.try_lock());
  CHECK_FALSE(claim->enter().owns_lock());
  another.unlock();
}

}  // namespace exphil::core
