// Sessions of one model on several devices: where they go, that a batch over several devices has the bits of
// lone steps and computes them side by side, and that it changes nothing where one device fails.
#include "core/session/replicas.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "core/session/session.hpp"
#include "core/session/session_group.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/gathered.hpp"
#include "support/numbers.hpp"
#include "support/oracle_policy.hpp"

namespace exphil::core {

namespace {

using test::error_of;
using test::make_oracle;
using test::OracleModel;
using Out = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

// One model on three devices.
struct Model {
  static constexpr std::size_t kDevices = 3;
  Model() {
    for (std::size_t i = 0; i < kDevices; ++i) policies.push_back(make_oracle());
  }
  std::unique_ptr<Session> session(std::size_t device, std::int64_t history = 0,
                                   std::shared_ptr<Gatherer> gatherer = nullptr) {
    SessionOptions options;
    options.history = history;
    return std::make_unique<Session>(policies[device], options, std::move(gatherer),
                                     Replicas::Place(replicas, device));
  }
  std::vector<std::shared_ptr<OracleModel>> policies;
  std::shared_ptr<Replicas> replicas = std::make_shared<Replicas>(kDevices);
};

// Sessions on devices 2, 0, 1, 2, 0, 1, ..., with and without a history.
struct Agents {
  explicit Agents(Model& model, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      own.push_back(model.session((i + 2) % Model::kDevices, i % 2 == 0 ? 0 : 4));
      all.push_back(own.back().get());
    }
    group.emplace(all);
    group->keep();
  }
  // By a group of many calls, and by one of this call.
  Out step(const float* obs) {
    Out out(all.size() * test::kOracleOut);
    SessionGroup now(all);
    (++steps % 2 == 0 ? *group : now).step(obs, out.data());
    return out;
  }
  std::vector<Bytes> states() const {
    std::vector<Bytes> bytes;
    for (Session* session : all) bytes.push_back(session->export_state());
    return bytes;
  }
  std::vector<std::unique_ptr<Session>> own;
  std::vector<Session*> all;
  std::optional<SessionGroup> group;
  int steps = 0;
};

const float* frames_of(std::size_t count, std::size_t t) {
  static const Out all = test::Random(5).vector(64 * 16 * test::kOracleIn, -1, 1);
  return all.data() + t * count * test::kOracleIn;
}

}  // namespace

TEST_CASE("a new session goes to the device with the fewest, and to the lowest number of several",
          "[session][devices]") {
  const auto replicas = std::make_shared<Replicas>(4);
  std::vector<Replicas::Place> places;
  std::vector<std::size_t> devices;
  const auto add = [&] {
    places.push_back(Replicas::least_loaded(replicas));
    devices.push_back(places.back().device());
  };
  for (int i = 0; i < 6; ++i) add();
  CHECK(devices == std::vector<std::size_t>{0, 1, 2, 3, 0, 1});
  { const Replicas::Place passing = Replicas::least_loaded(replicas); }
  const Replicas::Place chosen(replicas, 3);
  devices.clear();
  for (int i = 0; i < 3; ++i) add();
  CHECK(devices == std::vector<std::size_t>{2, 0, 1});
  places.clear();
  add();
  CHECK(devices.back() == 0);
}

TEST_CASE("no session goes to a lost device, unless all are lost", "[session][devices]") {
  const auto replicas = std::make_shared<Replicas>(3);
  replicas->set_lost(0);
  const Replicas::Place first = Replicas::least_loaded(replicas), second = Replicas::least_loaded(replicas);
  CHECK(first.device() == 1);
  CHECK(second.device() == 2);
  CHECK(replicas->alive() == std::vector<std::size_t>{1, 2});
  replicas->set_lost(2);
  CHECK(Replicas::least_loaded(replicas).device() == 1);
  replicas->set_lost(1);
  CHECK(Replicas::least_loaded(replicas).device() == 0);
  CHECK(replicas->alive().size() == 3);
}

TEST_CASE("a batch over several devices has the bits of lone steps, in the callers' order",
          "[session][devices]") {
  constexpr std::size_t kAgents = 10, kFrames = 9;
  Model model;
  Agents agents(model, kAgents);
  std::vector<std::unique_ptr<Session>> alone;
  for (std::size_t i = 0; i < kAgents; ++i) alone.push_back(std::make_unique<Session>(make_oracle()));
  for (std::size_t t = 0; t < kFrames; ++t) {
    const float* const obs = frames_of(kAgents, t);
    const Out out = agents.step(obs);
    for (std::size_t i = 0; i < kAgents; ++i) {
      Out right(test::kOracleOut);
      alone[i]->step(obs + i * test::kOracleIn, right.data());
      REQUIRE(std::equal(right.begin(), right.end(),
                         out.begin() + static_cast<std::ptrdiff_t>(i * test::kOracleOut)));
    }
  }
  for (std::size_t i = 0; i < kAgents; ++i) CHECK(agents.all[i]->export_state() == alone[i]->export_state());
  // Back over all of a history, which began to overwrite its first entries.
  agents.all[1]->roll_back(4);
  Session shorter(make_oracle());
  Out ignored(test::kOracleOut);
  for (std::size_t t = 0; t + 4 < kFrames; ++t)
    shorter.step(frames_of(kAgents, t) + test::kOracleIn, ignored.data());
  CHECK(agents.all[1]->export_state() == shorter.export_state());
}

// Each device's part waits until those of all devices have begun.
TEST_CASE("the devices of a batch compute side by side", "[session][devices]") {
  Model model;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t begun = 0;
  for (const auto& policy : model.policies) {
    policy->on_advance = [&](std::int64_t) {
      std::unique_lock<std::mutex> lock(mutex);
      ++begun;
      changed.notify_all();
      changed.wait(lock, [&] { return begun % Model::kDevices == 0; });
    };
  }
  Agents agents(model, Model::kDevices);
  for (std::size_t t = 0; t < 5; ++t) {
    agents.step(frames_of(Model::kDevices, t));
    CHECK(begun == (t + 1) * Model::kDevices);
  }
}

TEST_CASE("where one device fails no session of a batch has changed", "[session][devices]") {
  constexpr std::size_t kAgents = 7;
  for (std::size_t failing = 0; failing < Model::kDevices; ++failing) {
    INFO("device " << failing);
    Model model;
    std::atomic<bool> fails{false};
    model.policies[failing]->on_advance = [&fails](std::int64_t) {
      if (fails) fail(ErrorKind::device_lost, "", "the device is lost");
    };
    Agents agents(model, kAgents), undisturbed(model, kAgents);
    for (std::size_t t = 0; t < 6; ++t)
      agents.step(frames_of(kAgents, t)), undisturbed.step(frames_of(kAgents, t));
    const std::vector<Bytes> before = agents.states();
    fails = true;
    const auto error = error_of([&] { agents.step(frames_of(kAgents, 20)); });
    CHECK(error.kind == ErrorKind::device_lost);
    CHECK(agents.states() == before);
    fails = false;
    CHECK(agents.step(frames_of(kAgents, 6)) == undisturbed.step(frames_of(kAgents, 6)));
    for (std::size_t i = 1; i < kAgents; i += 2)
      agents.all[i]->roll_back(4), undisturbed.all[i]->roll_back(4);
    CHECK(agents.states() == undisturbed.states());
  }
}

TEST_CASE("sessions of the other devices go on where one has failed", "[session][devices]") {
  Model model;
  model.policies[1]->on_advance = [](std::int64_t) { fail(ErrorKind::device_lost, "", "lost"); };
  const auto here = model.session(0), lost = model.session(1), there = model.session(2);
  Out out(2 * test::kOracleOut), right(2 * test::kOracleOut);
  CHECK(error_of([&] { lost->step(frames_of(2, 0), out.data()); }).kind == ErrorKind::device_lost);
  SessionGroup({there.get(), here.get()}).step(frames_of(2, 0), out.data());
  Session one(make_oracle()), other(make_oracle());
  one.step(frames_of(2, 0), right.data());
  other.step(frames_of(2, 0) + test::kOracleIn, right.data() + test::kOracleOut);
  CHECK(out == right);
}

TEST_CASE("states go from one device to another", "[session][devices]") {
  Model model;
  const auto here = model.session(0, 2), there = model.session(2);
  Out out(test::kOracleOut);
  for (std::size_t t = 0; t < 4; ++t) here->step(frames_of(1, t), out.data());
  const auto snapshot = here->snapshot();
  const Bytes state = here->export_state();
  try {
    there->restore(*snapshot, false);
    FAIL("it waits for a device");
  } catch (const WouldWait&) {
  }
  there->restore(*snapshot);
  CHECK(there->export_state() == state);
  const auto third = model.session(1);
  third->import_state(state.data(), state.size());
  CHECK(third->export_state() == state);
  here->restore(*snapshot, false);
  CHECK(here->export_state() == state);
}

TEST_CASE("sessions and snapshots of other models are refused", "[session][devices]") {
  Model model, other;
  const auto here = model.session(0), foreign = other.session(1);
  Session plain(make_oracle());
  Out out(2 * test::kOracleOut);
  for (Session* session : {foreign.get(), &plain}) {
    for (const auto& batch : {std::vector<Session*>{here.get(), session}, {session, here.get()}}) {
      const auto error = error_of([&] { SessionGroup(batch).step(frames_of(2, 0), out.data()); });
      CHECK(error.kind == ErrorKind::mismatch);
    }
    const auto error = error_of([&] { here->restore(*session->snapshot()); });
    CHECK(error.kind == ErrorKind::mismatch);
  }
}

TEST_CASE("frames are gathered on each device", "[session][devices][gather]") {
  Model model;
  std::vector<std::shared_ptr<Gatherer>> gatherers;
  for (const auto& policy : model.policies) gatherers.push_back(std::make_shared<Gatherer>(policy));
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::future<test::GatheredAnswer>> answers;
  for (std::size_t i = 0; i < 9; ++i) {
    sessions.push_back(model.session(i % Model::kDevices, 0, gatherers[i % Model::kDevices]));
  }
  for (std::size_t i = 0; i < 9; ++i)
    answers.push_back(test::submit(*sessions[i], frames_of(9, 0) + i * test::kOracleIn));
  for (std::size_t i = 0; i < 9; ++i) {
    Session alone(make_oracle());
    Out right(test::kOracleOut);
    alone.step(frames_of(9, 0) + i * test::kOracleIn, right.data());
    CHECK(answers[i].get().out == right);
  }
  for (const auto& gatherer : gatherers) CHECK(gatherer->counts().frames == 3);
}

}  // namespace exphil::core
