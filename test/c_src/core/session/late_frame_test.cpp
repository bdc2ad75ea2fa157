// Frames whose answers come late: who finishes them, and what the session is until then.
#include "core/session/late_frame.hpp"

#include <thread>

#include "core/session/session.hpp"
#include "core/session/session_group.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/numbers.hpp"
#include "support/oracle_policy.hpp"

namespace exphil::core {

namespace {

using test::make_oracle;
using test::OracleModel;
using Out = std::vector<float>;

const Out& frames() {
  static const Out all = test::Random(1).vector(20 * test::kOracleIn, -1, 1);
  return all;
}

std::shared_ptr<OracleModel> splitting_oracle() {
  auto policy = make_oracle();
  policy->splits = true;
  return policy;
}

// A frame on a thread that must not wait; null where it was there in time.
std::shared_ptr<LateFrame> begin(Session& session, std::size_t t, Out* out) {
  try {
    session.step(frames().data() + t * test::kOracleIn, out->data(), false);
    return nullptr;
  } catch (const Late& late) {
    return late.frame;
  }
}

// The answer and the state of each of the first frames.
struct Expected {
  std::vector<Out> outs;
  std::vector<std::vector<std::uint8_t>> states;
};
Expected expected(std::size_t count) {
  Session session(make_oracle());
  Expected all;
  all.states.push_back(session.export_state());
  for (std::size_t t = 0; t < count; ++t) {
    all.outs.emplace_back(test::kOracleOut);
    session.step(frames().data() + t * test::kOracleIn, all.outs.back().data());
    all.states.push_back(session.export_state());
  }
  return all;
}

}  // namespace

TEST_CASE("frames in time and late frames give the same bits", "[session][late]") {
  const Expected right = expected(12);
  const auto policy = splitting_oracle();
  SessionOptions options;
  options.history = 4;
  for (const std::int64_t history : {0, 4}) {
    options.history = history;
    Session session(policy, options);
    REQUIRE(session.splits_frames());
    for (std::size_t t = 0; t < 12; ++t) {
      policy->late = t % 3 == 1;
      Out out(test::kOracleOut);
      const auto late = begin(session, t, &out);
      CHECK((late != nullptr) == policy->late);
      if (late) late->answer(out.data());
      CHECK(out == right.outs[t]);
      CHECK(session.export_state() == right.states[t + 1]);
    }
    if (history == 0) continue;
    session.roll_back(3);
    CHECK(session.export_state() == right.states[9]);
  }
  CHECK(policy->collisions == 0);
}

TEST_CASE("a late frame keeps its session, and the next call finishes it", "[session][late]") {
  const Expected right = expected(3);
  const auto policy = splitting_oracle();
  Session session(policy);
  policy->late = true;
  Out out(test::kOracleOut);
  const auto late = begin(session, 0, &out);
  REQUIRE(late);
  CHECK_THROWS_AS(session.step(frames().data(), out.data(), false), WouldWait);
  CHECK_THROWS_AS(session.roll_back(0, false), WouldWait);
  CHECK(session.export_state() == right.states[1]);  // finishes it
  policy->late = false;
  CHECK(begin(session, 1, &out) == nullptr);
  CHECK(out == right.outs[1]);
  late->answer(out.data());
  CHECK(out == right.outs[0]);
  CHECK(session.export_state() == right.states[2]);
}

TEST_CASE("a late frame that nobody answers for ends with the next call, or with its session",
          "[session][late]") {
  const Expected right = expected(2);
  const auto policy = splitting_oracle();
  {
    Session session(policy);
    Out out(test::kOracleOut);
    policy->late = true;
    REQUIRE(begin(session, 0, &out));
    session.step(frames().data() + test::kOracleIn, out.data());
    CHECK(out == right.outs[1]);
    CHECK(session.export_state() == right.states[2]);
    CHECK(policy->dropped == 0);
    REQUIRE(begin(session, 2, &out));
  }
  CHECK(policy->dropped == 1);
}

TEST_CASE("a late frame that fails leaves the session as it was, and unlocked", "[session][late]") {
  const Expected right = expected(1);
  const auto policy = splitting_oracle();
  Session session(policy);
  Out out(test::kOracleOut);
  policy->late = policy->fails = true;
  const auto late = begin(session, 0, &out);
  REQUIRE(late);
  for (int i = 0; i < 2; ++i) {
    CHECK(test::error_of([&] { late->answer(out.data()); }).kind == ErrorKind::cuda_error);
    CHECK(session.export_state() == right.states[0]);
  }
  policy->late = false;
  CHECK(test::error_of([&] { begin(session, 0, &out); }).kind == ErrorKind::cuda_error);
  CHECK(session.export_state() == right.states[0]);
  policy->fails = false;
  CHECK(begin(session, 0, &out) == nullptr);
  CHECK(out == right.outs[0]);
}

TEST_CASE("many threads share sessions whose frames are late, and none waits for ever", "[session][late]") {
  const auto policy = splitting_oracle();
  Session a(policy), b(policy);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Out out(2 * test::kOracleOut);
      for (int round = 0; round < 100; ++round) {
        policy->late = (round + i) % 2 == 0;
        Session& session = (round + i) % 3 == 0 ? a : b;
        try {
          if (const auto late = begin(session, 0, &out); late && round % 5 != i) late->answer(out.data());
        } catch (const WouldWait&) {
          session.step(frames().data(), out.data());
        }
        if (round % 10 == i) SessionGroup({&b, &a}).step(frames().data(), out.data());
        if (round % 10 == i + 4) a.snapshot();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(policy->collisions == 0);
  CHECK(a.export_state().size() == b.export_state().size());
}

}  // namespace exphil::core
