// Rolling back within a session on the host backend: recorded operations, limits, and acting.
#include <cstring>

#include "core/session/session.hpp"
#include "host/policy/policy.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/exphil_data.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"
#include "support/rollback_case.hpp"

namespace exphil {

namespace {

using core::ErrorKind;
using core::Session;
using test::error_of;
using Floats = std::vector<float>;

core::SessionOptions history_of(std::int64_t frames, std::int64_t window = 0) {
  core::SessionOptions options;
  options.history = frames;
  options.window = window;
  return options;
}

Floats recorded_frames(const core::Policy& policy, std::int64_t count) {
  return test::Random(11).vector(static_cast<std::size_t>(count * policy.config().d_input), -1, 1);
}

}  // namespace

TEST_CASE("a long resimulation on the host has the bits of single steps", "[host][policy][rollback]") {
  test::check_long_resimulation(host::make_policy(*test::make_policy({}), {}));
}

TEST_CASE("the recorded rollbacks by going back in the session", "[host][policy][rollback][melee]") {
  if (!test::have_melee()) return;
  test::check_recorded_rollbacks(host::make_policy(*test::melee_policy(), {}), test::melee_rollback());
}

TEST_CASE("going back beyond the history says how far it goes, and changes nothing",
          "[host][policy][rollback]") {
  const std::shared_ptr<core::Policy> policy = host::make_policy(*test::make_policy({}), {});
  const Floats frames = recorded_frames(*policy, 9);
  Floats out(9 * static_cast<std::size_t>(policy->config().d_output));
  for (const std::int64_t window : {0, 4}) {
    Session session(policy, history_of(3, window)), none(policy, history_of(0, window));
    const auto refused = [&](const auto& call, ErrorKind kind, const char* text) {
      const auto before = session.export_state();
      const test::CaughtError error = error_of(call);
      CHECK(error.kind == kind);
      CHECK(error.says(text));
      CHECK(session.export_state() == before);
    };
    const auto back = [&](Session& of, std::int64_t count) { return [&of, count] { of.roll_back(count); }; };
    refused(back(none, 1), ErrorKind::unsupported, "history: n");
    refused(back(session, -1), ErrorKind::invalid_argument, "at least 0");
    refused(back(session, 1), ErrorKind::limit_exceeded, "can go back 0 frames");
    session.step(frames.data(), out.data());
    refused(back(session, 2), ErrorKind::limit_exceeded, "can go back 1 frames now (history: 3), got 2");
    refused([&] { session.resimulate(2, frames.data(), 1, out.data()); }, ErrorKind::limit_exceeded,
            "go back 1");
    refused([&] { session.resimulate(1, frames.data(), 4, out.data()); }, ErrorKind::limit_exceeded,
            "at most as many frames as the history has, 3; got 4");
    session.resimulate(1, frames.data(), 3, out.data());
    refused(back(session, 4), ErrorKind::limit_exceeded, "can go back 3 frames");
    none.roll_back(0);
    none.resimulate(0, nullptr, 0, nullptr);
    // The history begins anew after anything that replaces the state.
    const auto state = session.export_state();
    const auto snapshot = session.snapshot();
    const std::vector<std::function<void()>> replaced = {
        [&] { session.restore(*snapshot); },
        [&] { session.import_state(state.data(), state.size()); },
        [&] { session.prefill(frames.data(), 9, out.data()); },
    };
    for (const auto& replace : replaced) {
      session.step(frames.data(), out.data());
      replace();
      refused(back(session, 1), ErrorKind::limit_exceeded, "can go back 0 frames");
    }
  }
  CHECK(error_of([&] { Session(policy, history_of(core::kMostHistory + 1)); }).argument == ":history");
}

TEST_CASE("frames that act again after a rollback draw the same", "[host][policy][rollback][exphil]") {
  if (!test::have_exphil()) return;
  const std::shared_ptr<core::Policy> policy =
      host::make_policy(*test::exphil_policy("exphil_policy/policy_old_term.bin"), {});
  const Floats frames = test::exphil_frames();
  const auto width = static_cast<std::size_t>(policy->config().d_input);
  const auto same = [](const core::Action& p, const core::Action& q) {
    return p.buttons == q.buttons && p.bins == q.bins && p.confidence == q.confidence;
  };
  for (const std::int64_t window : {0, 20}) {
    core::SessionOptions options = history_of(7, window);
    options.rules.seed = 42;
    Session session(policy, options), twin(policy, options);
    Floats logits(7 * static_cast<std::size_t>(policy->config().d_output));
    for (std::size_t t = 0; t < 30; t += 3) {
      std::vector<core::Action> expected;
      for (std::size_t i = t; i < t + 7; ++i) {
        expected.push_back(session.act(frames.data() + i * width, logits.data()));
      }
      session.roll_back(7);
      CHECK(session.export_state() == twin.export_state());
      CHECK(same(session.act(frames.data() + (t + 9) * width, logits.data()),
                 twin.act(frames.data() + (t + 9) * width, logits.data())));
      const auto again = session.resimulate_acts(1, frames.data() + t * width, 7, logits.data());
      for (std::size_t i = 0; i < 7; ++i) CHECK(same(again[i], expected[i]));
      twin.roll_back(1);
      for (std::size_t i = t; i < t + 3; ++i) twin.act(frames.data() + i * width, logits.data());
      session.roll_back(4);
      CHECK(session.export_state() == twin.export_state());
    }
  }
}

}  // namespace exphil
