// Sessions with a window, and sessions that act, over the CPU backend: the guarantees of every kind of
// Session.
#include <cstring>

#include "core/session/session.hpp"
#include "core/session/session_group.hpp"
#include "core/session/state_codec.hpp"
#include "host/policy/policy.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/exphil_data.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"

namespace exphil {

namespace {

using core::Pad;
using core::Session;
using core::SessionGroup;
using core::SessionOptions;

using Floats = std::vector<float>;

SessionOptions window_of(std::int64_t frames, Pad pad = Pad::repeat) {
  SessionOptions options;
  options.window = frames;
  options.pad = pad;
  return options;
}

// Frames from `seed`, {count, d_input}.
Floats frames_of(const core::Policy& policy, std::int64_t count, std::uint64_t seed = 5) {
  return test::Random(seed).vector(static_cast<std::size_t>(count * policy.config().d_input), -1, 1);
}

Floats step(Session& session, const float* obs) {
  Floats out(static_cast<std::size_t>(session.policy()->config().d_output));
  session.step(obs, out.data());
  return out;
}

bool same(const core::Action& p, const core::Action& q) {
  return p.buttons == q.buttons && p.bins == q.bins && p.confidence == q.confidence;
}

std::shared_ptr<core::Policy> small_policy() {
  return host::make_policy(*test::make_policy({}), {});
}

}  // namespace

// By which a snapshot is taken on a normal scheduler or not.
TEST_CASE("a snapshot copies a session's frames where it has a window, else its state",
          "[host][policy][window]") {
  const auto policy = small_policy();
  const std::int64_t width = policy->config().d_input;
  SessionOptions options = window_of(60);
  CHECK(Session(policy, options).copied_floats() == 2 * width * 61);
  options.history = 600;
  CHECK(Session(policy, options).copied_floats() == 2 * width * 661);
  options.window = 0;
  CHECK(Session(policy, options).copied_floats() == policy->config().state_floats());
}

TEST_CASE("a session with a window answers like window, whatever its earlier frames",
          "[host][policy][window]") {
  const auto policy = small_policy();
  const std::int64_t width = policy->config().d_input;
  const std::size_t weights = policy->resident_bytes();
  const auto [window, pad] = GENERATE(table<std::int64_t, Pad>({{1, Pad::repeat},
                                                                {7, Pad::repeat},
                                                                {7, Pad::zeros},
                                                                {7, Pad::none},
                                                                {70, Pad::none},
                                                                {130, Pad::repeat}}));
  const std::int64_t count = window < 70 ? 40 : window + 10;
  const Floats frames = frames_of(*policy, count);
  {
    Session session(policy, window_of(window, pad));
    for (std::int64_t t = 0; t < count; ++t) {
      Floats rows;
      for (std::int64_t i = t - window + 1; i <= t; ++i) {
        if (i < 0 && pad == Pad::none) continue;
        const auto row = frames.begin() + std::max<std::int64_t>(i, 0) * width;
        if (i < 0 && pad == Pad::zeros) {
          rows.insert(rows.end(), static_cast<std::size_t>(width), 0.0f);
        } else {
          rows.insert(rows.end(), row, row + width);
        }
      }
      Floats expected(static_cast<std::size_t>(policy->config().d_output));
      policy->window(rows.data(), 1, static_cast<std::int64_t>(rows.size()) / width, expected.data());
      CHECK(step(session, frames.data() + t * width) == expected);
    }
  }
  CHECK(policy->resident_bytes() == weights);
}

TEST_CASE("windows: prefill, snapshot, restore, export, import and batches", "[host][policy][window]") {
  const auto policy = small_policy();
  const std::int64_t width = policy->config().d_input;
  const Floats frames = frames_of(*policy, 30);
  for (const std::int64_t before : {1, 4, 7, 12}) {
    Session stepped(policy, window_of(7)), at_once(policy, window_of(7)), imported(policy, window_of(7));
    Floats outs, all(static_cast<std::size_t>(before * policy->config().d_output));
    for (std::int64_t t = 0; t < before; ++t) {
      const Floats out = step(stepped, frames.data() + t * width);
      outs.insert(outs.end(), out.begin(), out.end());
    }
    at_once.prefill(frames.data(), before, all.data());
    CHECK(all == outs);
    const auto snapshot = stepped.snapshot();
    const auto bytes = stepped.export_state();
    imported.import_state(bytes.data(), bytes.size());
    CHECK(imported.export_state() == bytes);
    const float* next = frames.data() + before * width;
    const Floats expected = step(stepped, next);
    CHECK(step(at_once, next) == expected);
    CHECK(step(imported, next) == expected);
    stepped.restore(*snapshot);
    CHECK(step(stepped, next) == expected);
  }
  // A carried session and two windows in one group.
  Session carried(policy), first(policy, window_of(3)), second(policy, window_of(5, Pad::zeros));
  Session carried_alone(policy), first_alone(policy, window_of(3)),
      second_alone(policy, window_of(5, Pad::zeros));
  SessionGroup kept({&first, &carried, &second});
  for (std::int64_t t = 0; t + 3 <= 30; t += 3) {
    Floats out(static_cast<std::size_t>(3 * policy->config().d_output));
    SessionGroup now({&first, &carried, &second});
    (t % 2 == 0 ? kept : now).step(frames.data() + t * width, out.data());
    Floats expected = step(first_alone, frames.data() + t * width);
    for (const Floats& part : {step(carried_alone, frames.data() + (t + 1) * width),
                               step(second_alone, frames.data() + (t + 2) * width)}) {
      expected.insert(expected.end(), part.begin(), part.end());
    }
    CHECK(out == expected);
  }
}

// A full window does not have the frames before it, which a longer one would answer from.
TEST_CASE("windows: the state of another window is refused, and both are named", "[host][policy][window]") {
  const auto policy = small_policy();
  const Floats frames = frames_of(*policy, 10);
  const std::int64_t width = policy->config().d_input;
  for (const auto& [from, to] : {std::pair{4, 7}, std::pair{7, 4}}) {
    for (const std::int64_t seen : {0, 2, 4, 9}) {
      Session source(policy, window_of(from)), target(policy, window_of(to)),
          untouched(policy, window_of(to));
      for (std::int64_t t = 0; t < seen; ++t) step(source, frames.data() + t * width);
      for (Session* session : {&target, &untouched}) step(*session, frames.data());
      const auto bytes = source.export_state();
      const auto error = test::error_of([&] { target.import_state(bytes.data(), bytes.size()); });
      CHECK(error.kind == core::ErrorKind::mismatch);
      CHECK(error.argument == "state");
      CHECK(error.says("a window of " + std::to_string(from) + " frames"));
      CHECK(error.says("window has " + std::to_string(to)));
      CHECK(target.export_state() == untouched.export_state());
    }
  }
}

// What earlier versions of this library exported: the window's length is not there.
TEST_CASE("windows: a state without its length is right where it is full or empty",
          "[host][policy][window]") {
  const auto policy = small_policy();
  const Floats frames = frames_of(*policy, 10);
  const std::int64_t width = policy->config().d_input;
  for (const std::int64_t held : {0, 3, 4, 5}) {
    Session session(policy, window_of(4)), expected(policy, window_of(4));
    step(session, frames.data() + 9 * width);
    for (std::int64_t t = 0; t < held; ++t) step(expected, frames.data() + t * width);
    core::StateValues values;
    values.frames.emplace(frames.data(), frames.data() + held * width);
    const auto bytes = core::encode_state(policy->config(), policy->fingerprint(), values);
    const auto error = test::error_of([&] { session.import_state(bytes.data(), bytes.size()); });
    CHECK(error.thrown == (held == 3 || held == 5));
    if (error.thrown) {
      CHECK(error.kind == core::ErrorKind::mismatch);
      CHECK(error.says("holds " + std::to_string(held) + " frames"));
    } else {
      CHECK(step(session, frames.data() + 8 * width) == step(expected, frames.data() + 8 * width));
    }
  }
}

TEST_CASE("windows: states of another kind are refused and change nothing", "[host][policy][window]") {
  const auto policy = small_policy();
  const Floats frames = frames_of(*policy, 10);
  const std::int64_t width = policy->config().d_input;
  Session window(policy, window_of(4)), twin(policy, window_of(4)), longer(policy, window_of(5)),
      carried(policy);
  for (std::int64_t t = 0; t < 8; ++t) {
    for (Session* session : {&window, &twin, &longer, &carried}) step(*session, frames.data() + t * width);
  }
  const auto kind = [](const auto& call) { return test::error_of(call).kind; };
  CHECK(kind([&] { window.restore(*longer.snapshot()); }) == core::ErrorKind::mismatch);
  CHECK(kind([&] { window.restore(*carried.snapshot()); }) == core::ErrorKind::mismatch);
  CHECK(kind([&] { carried.restore(*window.snapshot()); }) == core::ErrorKind::mismatch);
  for (Session* other : {&longer, &carried}) {
    const auto bytes = other->export_state();
    CHECK(kind([&] { window.import_state(bytes.data(), bytes.size()); }) == core::ErrorKind::mismatch);
  }
  auto bytes = window.export_state();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= 0x10;
    CHECK(test::error_of([&] { window.import_state(bytes.data(), bytes.size()); }).thrown);
    bytes[i] ^= 0x10;
    CHECK(test::error_of([&] { window.import_state(bytes.data(), i); }).kind ==
          core::ErrorKind::invalid_state);
  }
  CHECK(step(window, frames.data() + 9 * width) == step(twin, frames.data() + 9 * width));
}

TEST_CASE("acting: a frame played again, imported or in a batch draws the same",
          "[host][policy][window][exphil]") {
  if (!test::have_exphil()) return;
  const std::shared_ptr<core::Policy> policy =
      host::make_policy(*test::exphil_policy("exphil_policy/policy_old_term.bin"), {});
  const Floats frames = test::exphil_frames();
  const std::int64_t width = policy->config().d_input;
  for (const std::int64_t window : {0, 20}) {
    SessionOptions options = window_of(window);
    options.rules.seed = 42;
    Session session(policy, options), twin(policy, options), other(policy, options);
    SessionOptions reseeded = options;
    reseeded.rules.seed = 43;
    Session another(policy, reseeded);
    Floats logits(2 * static_cast<std::size_t>(policy->config().d_output));
    int differs = 0;
    for (std::int64_t t = 0; t < 40; ++t) {
      const float* obs = frames.data() + t * width;
      const auto before = session.snapshot();
      const auto bytes = session.export_state();
      const core::Action action = session.act(obs, logits.data());
      other.import_state(bytes.data(), bytes.size());
      CHECK(same(other.act(obs, logits.data()), action));
      session.restore(*before);
      CHECK(same(session.act(obs, logits.data()), action));
      Floats both(obs, obs + width);
      both.insert(both.end(), obs, obs + width);
      const auto actions = SessionGroup({&another, &twin}).act(both.data(), logits.data());
      CHECK(same(actions[1], action));
      differs += !same(actions[0], action);
    }
    CHECK(differs > 30);
    CHECK(session.acts());
    session.step(frames.data(), logits.data());
    CHECK_FALSE(session.acts());
  }
  Session none(small_policy());
  Floats out(3);
  CHECK(test::error_of([&] { none.act(frames.data(), out.data()); }).kind == core::ErrorKind::unsupported);
  CHECK_FALSE(none.acts());
}

}  // namespace exphil
