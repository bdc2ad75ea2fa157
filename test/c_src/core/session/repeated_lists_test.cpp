// Lists of sessions that calls have again and again: which become groups, which are given up for others, and
// that no list finds the group of another one.
#include "core/session/repeated_lists.hpp"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/session/session.hpp"
#include "core/work/reaper.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"
#include "support/oracle_policy.hpp"

namespace exphil::core {

namespace {

using test::make_oracle;
using test::OracleModel;

constexpr int kCallsBefore = 4, kEntries = 32;

// Sessions of a policy with numbers as nif/ gives them.
class ListedAgents {
 public:
  ListedAgents(const std::shared_ptr<OracleModel>& policy, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) own_.push_back(std::make_unique<Session>(policy));
  }
  Session* operator[](std::size_t i) const { return own_[i].get(); }
  void end(std::size_t i) { own_[i].reset(); }

  std::shared_ptr<SessionGroup> find(RepeatedLists& lists, const std::vector<std::size_t>& which,
                                     const SessionGroup* guess = nullptr) const {
    RepeatedLists::Numbers numbers;
    std::vector<Session*> sessions;
    for (const std::size_t i : which) numbers.push_back(100 + i), sessions.push_back((*this)[i]);
    return lists.find(numbers, sessions, guess);
  }
  static std::shared_ptr<SessionGroup> guess(RepeatedLists& lists, const std::vector<std::size_t>& which) {
    return lists.guess(100 + which[0], which.size());
  }
  std::shared_ptr<SessionGroup> find_often(RepeatedLists& lists,
                                           const std::vector<std::size_t>& which) const {
    for (int call = 0; call < kCallsBefore; ++call) CHECK(find(lists, which) == nullptr);
    return find(lists, which);
  }

 private:
  std::vector<std::unique_ptr<Session>> own_;
};

}  // namespace

TEST_CASE("a list is a group once several calls had it, and no other list is that group",
          "[session][group]") {
  const ListedAgents agents(make_oracle(), 4);
  RepeatedLists lists;
  const auto group = agents.find_often(lists, {2, 0, 1});
  REQUIRE(group != nullptr);
  CHECK(group->size() == 3);
  for (const std::vector<std::size_t>& other :
       {std::vector<std::size_t>{2, 1, 0}, {2, 0}, {2, 0, 1, 3}, {2, 0, 3}, {0, 2, 1}}) {
    CHECK(agents.find(lists, other) == nullptr);
  }
  CHECK(agents.find(lists, {2, 0, 1}) == group);
}

TEST_CASE("the group of a repeated list has the bits of a list of one call", "[session][group]") {
  constexpr std::size_t kAgents = 5;
  const auto policy = make_oracle();
  const ListedAgents repeated(policy, kAgents), once(policy, kAgents);
  const std::vector<std::size_t> order = {3, 0, 4, 1, 2};
  RepeatedLists lists;
  test::Random random(3);
  std::vector<float> out(kAgents * test::kOracleOut), right(out);
  for (int call = 0; call < 3 * kCallsBefore; ++call) {
    const auto frames = random.vector(kAgents * test::kOracleIn, -1, 1);
    std::vector<Session*> now;
    for (const std::size_t i : order) now.push_back(once[i]);
    SessionGroup(now).step(frames.data(), right.data());
    now.clear();
    for (const std::size_t i : order) now.push_back(repeated[i]);
    const auto group = repeated.find(lists, order);
    CHECK((group != nullptr) == (call >= kCallsBefore));
    group ? group->step(frames.data(), out.data()) : SessionGroup(now).step(frames.data(), out.data());
    REQUIRE(out == right);
  }
}

TEST_CASE("a new list takes the place of a list that came once, else of the group that was used longest ago",
          "[session][group]") {
  const ListedAgents agents(make_oracle(), 40);
  RepeatedLists lists;
  std::vector<std::shared_ptr<SessionGroup>> groups;
  for (std::size_t i = 0; i < kEntries - 1; ++i) {
    groups.push_back(agents.find_often(lists, {i, i + 1}));
    REQUIRE(groups.back() != nullptr);
  }
  for (std::size_t i = 0; i < 30; ++i) CHECK(agents.find(lists, {i}) == nullptr);
  for (std::size_t i = 0; i < groups.size(); ++i) CHECK(agents.find(lists, {i, i + 1}) == groups[i]);

  groups.push_back(agents.find_often(lists, {38, 36}));
  REQUIRE(groups.back() != nullptr);
  CHECK(agents.find(lists, {0, 1}) == groups[0]);
  CHECK(agents.find(lists, {39}) == nullptr);  // in place of {1, 2}
  CHECK(agents.find(lists, {0, 1}) == groups[0]);
  for (std::size_t i = 2; i < kEntries - 1; ++i) CHECK(agents.find(lists, {i, i + 1}) == groups[i]);
  CHECK(agents.find(lists, {1, 2}) == nullptr);
  drain_reaper();
  CHECK(groups[1].use_count() == 1);  // nothing else keeps it
}

TEST_CASE("a list's group is given up when one of its sessions ends", "[session][group]") {
  ListedAgents agents(make_oracle(), 5);
  RepeatedLists lists, others;
  std::weak_ptr<SessionGroup> ended = agents.find_often(lists, {0, 1, 2}),
                              also = agents.find_often(others, {3, 1});
  const auto goes_on = agents.find_often(lists, {3, 4});
  std::vector<float> out(3 * test::kOracleOut);
  const std::vector<float> frames(3 * test::kOracleIn);
  for (int call = 0; call < 3; ++call) ended.lock()->step(frames.data(), out.data());  // with its claim
  agents.end(1);
  CHECK(ListedAgents::guess(lists, {0, 1, 2}) == nullptr);
  drain_reaper();
  CHECK(ended.expired());
  CHECK(also.expired());
  CHECK(agents.find(lists, {3, 4}) == goes_on);
  agents.end(0);
  CHECK(agents.find(lists, {3, 4}) == goes_on);
}

TEST_CASE("sessions may end later than what knows their lists", "[session][group]") {
  ListedAgents agents(make_oracle(), 2);
  auto lists = std::make_unique<RepeatedLists>();
  std::weak_ptr<SessionGroup> group = agents.find_often(*lists, {0, 1});
  CHECK(!group.expired());
  lists.reset();
  CHECK(group.expired());
}

// A policy on a GPU allocates memory meanwhile.
TEST_CASE("other lists do not wait until a list's group is made", "[session][group]") {
  const auto policy = make_oracle();
  const ListedAgents agents(policy, 4);
  RepeatedLists lists;
  std::shared_ptr<SessionGroup> meanwhile;
  bool first = true;
  policy->on_group_memory = [&] {
    if (!std::exchange(first, false)) return;
    std::thread([&] { meanwhile = agents.find_often(lists, {2, 3}); }).join();
  };
  const auto group = agents.find_often(lists, {0, 1});
  REQUIRE(group != nullptr);
  REQUIRE(meanwhile != nullptr);
  CHECK(agents.find(lists, {0, 1}) == group);
  CHECK(agents.find(lists, {2, 3}) == meanwhile);
}

TEST_CASE("the guess for a list is the group of its length that began with its session last",
          "[session][group]") {
  const ListedAgents agents(make_oracle(), 5);
  RepeatedLists lists;
  CHECK(agents.guess(lists, {2, 0, 1}) == nullptr);
  for (int call = 0; call < kCallsBefore; ++call) agents.find(lists, {2, 0, 1});
  CHECK(agents.guess(lists, {2, 0, 1}) == nullptr);
  const auto group = agents.find(lists, {2, 0, 1});
  for (const std::vector<std::size_t>& likely : {std::vector<std::size_t>{2, 0, 1}, {2, 1, 0}, {2, 3, 4}}) {
    CHECK(agents.guess(lists, likely) == group);
  }
  for (const std::vector<std::size_t>& other : {std::vector<std::size_t>{0, 2, 1}, {2, 0}, {2, 0, 1, 3}}) {
    CHECK(agents.guess(lists, other) == nullptr);
  }
  const auto later = agents.find_often(lists, {2, 3, 4});
  CHECK(agents.guess(lists, {2, 0, 1}) == later);
  CHECK(agents.find(lists, {2, 0, 1}) == group);
  CHECK(agents.guess(lists, {2, 3, 4}) == group);
}

// Two lists that begin with the same session, in turns: each would always be taken for the other one.
TEST_CASE("a guess that was wrong is made more and more rarely", "[session][group]") {
  const ListedAgents agents(make_oracle(), 3);
  const std::vector<std::size_t> both[] = {{0, 1}, {0, 2}};
  RepeatedLists lists;
  for (const auto& list : both) agents.find_often(lists, list);
  const auto play = [&](int calls, bool in_turns) {
    int wrong = 0;
    for (int call = 0; call < calls; ++call) {
      const auto& list = both[in_turns ? call % 2 : 0];
      const auto guess = agents.guess(lists, list);
      wrong += guess != nullptr && guess != agents.find(lists, list, guess.get());
      if (guess == nullptr) agents.find(lists, list);
    }
    return wrong;
  };
  const int first = play(100, true);
  CHECK(first > 2);
  CHECK(first < 14);
  CHECK(play(1000, true) < 14);
  // Alone it is trusted again.
  CHECK(play(1000, false) <= 1);
  const auto guess = agents.guess(lists, both[0]);
  REQUIRE(guess != nullptr);
  CHECK(guess == agents.find(lists, both[0]));
}

// There are more lists than entries, so groups are given up while other threads step them. All frames are the
// same, so that a session's state says how many it had.
TEST_CASE("lists of many threads lose no frame while they take each other's places", "[session][group]") {
  constexpr std::size_t kThreads = 4, kRounds = 40, kLists = kEntries + 2;
  const auto policy = make_oracle();
  const ListedAgents agents(policy, kLists + 1);
  RepeatedLists lists;
  const auto frames = [] {
    auto one = test::Random(2).vector(test::kOracleIn, -1, 1), two = one;
    two.insert(two.end(), one.begin(), one.end());
    return two;
  }();
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::vector<float> out(2 * test::kOracleOut);
      for (std::size_t round = 0; round < kRounds; ++round) {
        for (std::size_t k = 0; k < kLists; ++k) {
          const std::size_t i = (k + thread) % kLists;
          for (std::size_t call = 0; call < kCallsBefore + 2; ++call) {
            const auto group = agents.find(lists, {i, i + 1});
            group ? group->step(frames.data(), out.data())
                  : SessionGroup({agents[i], agents[i + 1]}).step(frames.data(), out.data());
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  constexpr std::size_t kSteps = kThreads * kRounds * (kCallsBefore + 2);
  Session of_one_list(policy), of_two(policy);
  std::vector<float> out(test::kOracleOut);
  for (std::size_t step = 0; step < kSteps; ++step) of_one_list.step(frames.data(), out.data());
  for (std::size_t step = 0; step < 2 * kSteps; ++step) of_two.step(frames.data(), out.data());
  for (std::size_t i = 0; i <= kLists; ++i) {
    const bool at_an_end = i == 0 || i == kLists;
    CHECK(agents[i]->export_state() == (at_an_end ? of_one_list : of_two).export_state());
  }
}

TEST_CASE("a list that has sessions of two models, or one session twice, never becomes a group",
          "[session][group]") {
  const auto policy = make_oracle(1);
  Session one(policy), another(policy), other(make_oracle(2));
  RepeatedLists lists;
  for (int call = 0; call < 3 * kCallsBefore; ++call) {
    CHECK(lists.find({1, 2, 1}, {&one, &another, &one}) == nullptr);
    CHECK(lists.find({1, 2, 3}, {&one, &another, &other}) == nullptr);
  }
}

}  // namespace exphil::core
