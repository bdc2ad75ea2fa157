// Sessions and snapshots as nif/ hands them out: a State plus the lock and the policy that keeps it alive.
// Every call is safe from any thread; calls on one session run one after another.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/policy/policy.hpp"

namespace exphil::core {

class Snapshot {
 public:
  Snapshot(std::shared_ptr<Policy> policy, std::unique_ptr<State> state)
      : policy_(std::move(policy)), state_(std::move(state)) {}
  const std::shared_ptr<Policy>& policy() const { return policy_; }
  const State& state() const { return *state_; }

 private:
  std::shared_ptr<Policy> policy_;  // declared first: the state is freed before the policy may go
  std::unique_ptr<State> state_;
};

class Session {
 public:
  explicit Session(std::shared_ptr<Policy> policy);  // a zero state
  const std::shared_ptr<Policy>& policy() const { return policy_; }

  void step(const float* obs, float* out);
  void prefill(const float* frames, std::int64_t seq, float* out);
  std::unique_ptr<Snapshot> snapshot();
  void restore(const Snapshot& snapshot);  // mismatch unless the snapshot's policy is this session's
  std::vector<std::uint8_t> export_state();
  void import_state(const std::uint8_t* bytes,
                    std::size_t size);  // invalid_state or mismatch; unchanged then

  // One frame for each session, all of one policy (mismatch otherwise; invalid_argument where a session
  // appears twice). Locks are taken in address order, so two overlapping batches cannot deadlock.
  static void step_batch(const std::vector<Session*>& sessions, const float* obs, float* out);

 private:
  std::shared_ptr<Policy> policy_;
  std::unique_ptr<State> state_;
  std::mutex mutex_;
};

}  // namespace exphil::core
