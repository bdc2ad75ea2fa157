// Runs every public operation of a policy with a failure at each possible point: the error is one of the
// library's, every session keeps its state, bit for bit, and the next call works.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/session/session.hpp"
#include "core/session/session_group.hpp"
#include "core/session/state_codec.hpp"
#include "support/catch.hpp"
#include "support/faults.hpp"

namespace exphil::test {

struct PolicyOperation {
  std::string name;
  std::function<void()> run;
};

// Sessions with different states, and the operations on them. With a window, each session keeps that many
// frames instead of a state; where the policy has a controller, the operations include those that act.
class FaultBench {
 public:
  static constexpr std::int64_t kSessions = 70, kFrames = 70;
  // Sessions [0, kWithHistory) record this many frames, and have recorded one less.
  static constexpr std::int64_t kWithHistory = 4, kHistory = 4;

  explicit FaultBench(std::shared_ptr<core::Policy> policy, std::int64_t window = 0)
      : policy_(std::move(policy)), window_(window) {
    const core::PolicyConfig& c = policy_->config();
    obs_.resize(static_cast<std::size_t>(kSessions * c.d_input));
    for (std::size_t i = 0; i < obs_.size(); ++i) obs_[i] = static_cast<float>(i % 7) * 0.25f - 0.5f;
    out_.resize(static_cast<std::size_t>(kSessions * c.d_output));
    core::SessionOptions options;
    options.window = window_;
    for (std::int64_t i = 0; i < kSessions; ++i) {
      options.history = i < kWithHistory ? kHistory : 0;
      sessions_.push_back(std::make_unique<core::Session>(policy_, options));
      const auto state = core::encode_state(c, policy_->fingerprint(), values_of(i));
      sessions_.back()->import_state(state.data(), state.size());
      for (std::int64_t t = 1; t < options.history; ++t)
        sessions_.back()->step(obs_.data() + t * c.d_input, out_.data());
      before_.push_back(sessions_.back()->export_state());
    }
    snapshot_ = sessions_[1]->snapshot();
    // One step just before: the host backend may then split the next one over threads.
    core::Session other(policy_);
    other.step(obs_.data(), out_.data());
  }

  std::vector<PolicyOperation> operations() {
    std::vector<PolicyOperation> all = {
        {"step", [this] { sessions_[0]->step(obs_.data(), out_.data()); }},
        {"step_batch of 2", [this] { step_batch(2); }},
        {"step_batch of 5", [this] { step_batch(5); }},
        {"prefill of 3", [this] { sessions_[0]->prefill(obs_.data(), 3, out_.data()); }},
        {"window", [this] { policy_->window(obs_.data(), 5, 14, out_.data()); }},
        {"new session", [this] { new_session(0); }},
        {"new session with a history", [this] { new_session(kHistory); }},
        {"rollback 2, resimulate 3", [this] { sessions_[3]->resimulate(2, obs_.data(), 3, out_.data()); }},
        {"resimulate 4", [this] { sessions_[3]->resimulate(0, obs_.data(), kHistory, out_.data()); }},
        {"step, rollback", [this] { step_and_go_back(kHistory); }},
        {"snapshot", [this] { sessions_[0]->snapshot(); }},
        {"restore", [this] { sessions_[0]->restore(*snapshot_); }},
        {"export_state", [this] { sessions_[0]->export_state(); }},
        {"import_state", [this] { sessions_[0]->import_state(before_[2].data(), before_[2].size()); }},
    };
    if (window_ == 0) {  // with a window each frame is a call of its own, of which a few are enough
      all.push_back({"step_batch of all", [this] { step_batch(kSessions); }});
      all.push_back(
          {"prefill of many", [this] { sessions_[0]->prefill(obs_.data(), kFrames, out_.data()); }});
    }
    if (!policy_->config().groups.empty()) {
      all.push_back({"act", [this] { sessions_[0]->act(obs_.data(), out_.data()); }});
      all.push_back(
          {"resimulate_acts", [this] { sessions_[2]->resimulate_acts(1, obs_.data(), 2, out_.data()); }});
      all.push_back({"act_batch", [this] { core::SessionGroup(first(5)).act(obs_.data(), out_.data()); }});
    }
    return all;
  }

  std::vector<std::vector<std::uint8_t>> states() {
    std::vector<std::vector<std::uint8_t>> all;
    for (const auto& session : sessions_) all.push_back(session->export_state());
    return all;
  }
  const std::vector<std::vector<std::uint8_t>>& initial() const { return before_; }
  // One more frame for each session. Unlike a state as bytes, it shows what a policy keeps of a window's
  // frames.
  std::vector<float> next_outputs() {
    std::vector<float> outs(out_.size());
    for (std::size_t i = 0; i < sessions_.size(); ++i) {
      sessions_[i]->step(obs_.data(), outs.data() + i * outs.size() / sessions_.size());
    }
    return outs;
  }

 private:
  // What session i starts from: values of its own, or a window that is empty, partly full or full.
  core::StateValues values_of(std::int64_t i) const {
    const core::PolicyConfig& c = policy_->config();
    core::StateValues values;
    if (window_ > 0) {
      values.frames.emplace(static_cast<std::size_t>(i % (window_ + 1) * c.d_input),
                            0.01f * static_cast<float>(i));
      values.window = window_;
      return values;
    }
    values.carried.resize(static_cast<std::size_t>(c.state_floats()));
    for (std::size_t k = 0; k < values.carried.size(); ++k)
      values.carried[k] = static_cast<float>(i + 1) + 0.001f * static_cast<float>(k % 97);
    return values;
  }

  std::vector<core::Session*> first(std::int64_t count) const {
    std::vector<core::Session*> some;
    for (std::int64_t i = 0; i < count; ++i) some.push_back(sessions_[static_cast<std::size_t>(i)].get());
    return some;
  }

  void new_session(std::int64_t history) {
    core::SessionOptions options;
    options.window = window_;
    options.history = history;
    core::Session another(policy_, options);
  }

  // A step that fails must keep the whole history: going back all of it shows the first entry.
  void step_and_go_back(std::int64_t frames) {
    sessions_[3]->step(obs_.data(), out_.data());
    sessions_[3]->roll_back(frames);
  }

  void step_batch(std::int64_t count) { core::SessionGroup(first(count)).step(obs_.data(), out_.data()); }

  std::shared_ptr<core::Policy> policy_;
  const std::int64_t window_;
  std::vector<std::unique_ptr<core::Session>> sessions_;
  std::unique_ptr<core::Snapshot> snapshot_;
  std::vector<std::vector<std::uint8_t>> before_;
  std::vector<float> obs_, out_;
};

// make() returns the policy for one attempt: a new one where the failures of a cold policy are tested too.
// Returns the number of failures thrown.
inline int fail_everywhere(const std::function<std::shared_ptr<core::Policy>()>& make, const Failing& failing,
                           std::int64_t window = 0) {
  int thrown = 0;
  const std::size_t operations = FaultBench(make(), window).operations().size();
  for (std::size_t index = 0; index < operations; ++index) {
    FaultBench sound(make(), window);
    const std::string name = sound.operations()[index].name;
    sound.operations()[index].run();
    const auto after = sound.states();
    // A window has more than its state as bytes: what the policy keeps of its frames. So there every failure
    // comes twice, followed by the operation again and by a frame for each session.
    const auto next = window > 0 ? sound.next_outputs() : std::vector<float>();
    const auto unchanged = window > 0 ? FaultBench(make(), window).next_outputs() : std::vector<float>();
    for (const bool again : {true, false}) {
      if (!again && window == 0) continue;
      thrown += fail_at_each_point(name, failing, [&, again] {
        const auto bench = std::make_shared<FaultBench>(make(), window);
        const auto run = bench->operations()[index].run;
        const auto check = [=, &after, &next, &unchanged](bool threw) {
          if (threw) CHECK(bench->states() == bench->initial());
          if (threw && !again) {
            CHECK(bench->next_outputs() == unchanged);
            return;
          }
          if (threw) run();
          CHECK(bench->states() == after);
          if (window > 0) CHECK(bench->next_outputs() == next);
        };
        return Attempt{run, check};
      });
    }
  }
  return thrown;
}

}  // namespace exphil::test
