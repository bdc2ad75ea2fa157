#include "core/session/session.hpp"
#include "core/session/session_group.hpp"

#include <cstring>
#include <thread>

#include "core/session/state_codec.hpp"
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

Out step(Session& session, const std::vector<float>& frames, std::size_t t) {
  Out out(test::kOracleOut);
  session.step(frames.data() + t * test::kOracleIn, out.data());
  return out;
}

}  // namespace

TEST_CASE("restore and the same inputs give the same bits", "[session]") {
  const auto frames = test::Random(1).vector(20 * test::kOracleIn, -1, 1);
  Session session(make_oracle());
  for (std::size_t t = 0; t < 5; ++t) step(session, frames, t);
  const auto snapshot = session.snapshot();
  std::vector<Out> first, again;
  for (std::size_t t = 5; t < 12; ++t) first.push_back(step(session, frames, t));
  session.restore(*snapshot);
  for (std::size_t t = 5; t < 12; ++t) again.push_back(step(session, frames, t));
  CHECK(first == again);
  CHECK(first[0] != first[1]);
  Session other(session.policy());
  other.restore(*snapshot);
  CHECK(step(other, frames, 5) == first[0]);
}

TEST_CASE("prefill equals stepping, whatever the split; an empty one changes nothing", "[session]") {
  const auto frames = test::Random(2).vector(9 * test::kOracleIn, -1, 1);
  const auto policy = make_oracle();
  Session stepped(policy);
  Out expected;
  for (std::size_t t = 0; t < 9; ++t) {
    const Out out = step(stepped, frames, t);
    expected.insert(expected.end(), out.begin(), out.end());
  }
  for (std::int64_t split = 0; split <= 9; ++split) {
    Session session(policy);
    Out out(9 * test::kOracleOut);
    session.prefill(frames.data(), split, out.data());
    session.prefill(frames.data() + split * test::kOracleIn, 9 - split,
                    out.data() + split * test::kOracleOut);
    CHECK(out == expected);
    CHECK(session.export_state() == stepped.export_state());
  }
}

TEST_CASE("a snapshot outlives its session and keeps the model alive", "[session]") {
  const auto frames = test::Random(3).vector(test::kOracleIn, -1, 1);
  auto policy = make_oracle();
  const std::weak_ptr<OracleModel> watched = policy;
  std::unique_ptr<Snapshot> snapshot;
  {
    Session session(std::move(policy));
    step(session, frames, 0);
    snapshot = session.snapshot();
  }
  CHECK_FALSE(watched.expired());
  {
    Session later(snapshot->policy());
    later.restore(*snapshot);
  }
  snapshot.reset();
  CHECK(watched.expired());
}

TEST_CASE("a snapshot or state of another model is refused and changes nothing", "[session]") {
  const auto frames = test::Random(4).vector(2 * test::kOracleIn, -1, 1);
  Session one(make_oracle(1)), other(make_oracle(2));
  step(one, frames, 0);
  step(other, frames, 0);
  const auto before = one.export_state();
  CHECK(error_of([&] { one.restore(*other.snapshot()); }).kind == ErrorKind::mismatch);
  const auto exported = other.export_state();
  const CaughtError import = error_of([&] { one.import_state(exported.data(), exported.size()); });
  CHECK(import.kind == ErrorKind::mismatch);
  CHECK(import.says("fingerprint"));
  CHECK(one.export_state() == before);
}

TEST_CASE("calls from many threads never use one state concurrently, and batches do not deadlock",
          "[session]") {
  const auto frames = test::Random(6).vector(4 * test::kOracleIn, -1, 1);
  const auto policy = make_oracle();
  Session a(policy), b(policy), c(policy), d(policy);
  const auto kept = a.snapshot();
  const std::vector<std::vector<Session*>> batches = {{&a, &b, &c}, {&c, &b, &a}, {&d, &a}, {&b, &d, &c}};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    threads.emplace_back([&, i] {
      Out out(4 * test::kOracleOut);
      for (int round = 0; round < 200; ++round) {
        SessionGroup(batches[i]).step(frames.data(), out.data());
        batches[i][0]->snapshot();
        batches[i][1]->restore(*kept);
        const auto bytes = batches[i][0]->export_state();
        batches[i][1]->import_state(bytes.data(), bytes.size());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(policy->collisions == 0);
}

TEST_CASE("an exported state is restored exactly, and damage is detected", "[session][state_codec]") {
  const auto frames = test::Random(7).vector(4 * test::kOracleIn, -1, 1);
  const auto policy = make_oracle();
  Session session(policy), copy(policy);
  for (std::size_t t = 0; t < 3; ++t) step(session, frames, t);
  const std::vector<std::uint8_t> bytes = session.export_state();
  copy.import_state(bytes.data(), bytes.size());
  CHECK(copy.export_state() == bytes);

  int wrong = 0;
  const auto invalid = [&](const std::vector<std::uint8_t>& changed) {
    const CaughtError error = error_of([&] { copy.import_state(changed.data(), changed.size()); });
    return error.thrown && error.kind == ErrorKind::invalid_state && error.argument == "state";
  };
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<std::uint8_t> changed = bytes;
      changed[at] ^= static_cast<std::uint8_t>(1 << bit);
      wrong += !invalid(changed);
    }
  }
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    wrong += !invalid({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)});
  }
  std::vector<std::uint8_t> longer = bytes;
  longer.push_back(0);
  wrong += !invalid(longer);
  CHECK(wrong == 0);
  CHECK(copy.export_state() == bytes);
}

TEST_CASE("a state of another version says so", "[state_codec]") {
  const auto policy = make_oracle();
  std::vector<std::uint8_t> bytes = Session(policy).export_state();
  bytes[8] = 3;
  const CaughtError error =
      error_of([&] { decode_state(policy->config(), policy->fingerprint(), bytes.data(), bytes.size()); });
  CHECK(error.kind == ErrorKind::invalid_state);
  CHECK(error.says("version 3; this library reads version 2, version 4 and version 5"));
}

}  // namespace exphil::core
