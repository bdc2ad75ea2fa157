#include "core/policy/session.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/error.hpp"
#include "core/policy/state_codec.hpp"

namespace exphil::core {

namespace {

StateValues read_values(Policy& policy, const State& state) {
  const PolicyConfig& config = policy.config();
  StateValues values;
  values.ssm.resize(static_cast<std::size_t>(config.ssm_floats()));
  values.conv.resize(static_cast<std::size_t>(config.conv_floats()));
  policy.read_state(state, values.ssm.data(), values.conv.data());
  return values;
}

void require_same_policy(const std::vector<Session*>& sessions) {
  for (std::size_t i = 1; i < sessions.size(); ++i) {
    if (sessions[i]->policy() != sessions[0]->policy()) {
      fail(ErrorKind::mismatch, "sessions", "sessions must all be of one model; session ", i,
           " belongs to another than session 0");
    }
  }
}

std::vector<Session*> in_address_order(const std::vector<Session*>& sessions) {
  std::vector<Session*> ordered = sessions;
  std::sort(ordered.begin(), ordered.end(), std::less<Session*>());
  if (std::adjacent_find(ordered.begin(), ordered.end()) != ordered.end()) {
    fail(ErrorKind::invalid_argument, "sessions", "sessions must be distinct; a session appears twice");
  }
  return ordered;
}

}  // namespace

Session::Session(std::shared_ptr<Policy> policy) : policy_(std::move(policy)), state_(policy_->new_state()) {}

void Session::step(const float* obs, float* out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  State* const state = state_.get();
  policy_->step(&state, 1, obs, out);
}

void Session::prefill(const float* frames, std::int64_t seq, float* out) {
  if (seq == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  policy_->prefill(*state_, frames, seq, out);
}

std::unique_ptr<Snapshot> Session::snapshot() {
  std::unique_ptr<State> copy = policy_->new_state();
  const std::lock_guard<std::mutex> lock(mutex_);
  policy_->copy_state(*copy, *state_);
  return std::make_unique<Snapshot>(policy_, std::move(copy));
}

void Session::restore(const Snapshot& snapshot) {
  if (snapshot.policy() != policy_) {
    fail(ErrorKind::mismatch, "snapshot", "the snapshot was taken from a session of another model");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  policy_->copy_state(*state_, snapshot.state());
}

std::vector<std::uint8_t> Session::export_state() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const StateValues values = read_values(*policy_, *state_);
  return encode_state(policy_->config(), policy_->fingerprint(), values);
}

void Session::import_state(const std::uint8_t* bytes, std::size_t size) {
  const StateValues values = decode_state(policy_->config(), policy_->fingerprint(), bytes, size);
  const std::lock_guard<std::mutex> lock(mutex_);
  policy_->write_state(*state_, values.ssm.data(), values.conv.data());
}

void Session::step_batch(const std::vector<Session*>& sessions, const float* obs, float* out) {
  if (sessions.empty()) return;
  require_same_policy(sessions);
  std::vector<std::unique_lock<std::mutex>> locks;
  locks.reserve(sessions.size());
  for (Session* session : in_address_order(sessions)) locks.emplace_back(session->mutex_);
  std::vector<State*> states;
  states.reserve(sessions.size());
  for (Session* session : sessions) states.push_back(session->state_.get());
  sessions[0]->policy_->step(states.data(), static_cast<std::int64_t>(states.size()), obs, out);
}

}  // namespace exphil::core
