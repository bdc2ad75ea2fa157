#include "core/session/session_group.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/error.hpp"
#include "core/finite.hpp"
#include "core/session/session.hpp"

namespace exphil::core {

SessionGroup::SessionGroup(std::vector<Session*> sessions) : sessions_(std::move(sessions)) {
  if (sessions_.empty()) fail(ErrorKind::invalid_argument, "sessions", "sessions must not be empty");
  const Session& first = *sessions_[0];
  bool numbered = first.place_.has_value();
  for (std::size_t i = 0; i < sessions_.size(); ++i) {
    if (i + GroupLocks::kAhead < sessions_.size()) {
      const Session* const later = sessions_[i + GroupLocks::kAhead];
      __builtin_prefetch(&later->policy_);
      __builtin_prefetch(&later->mutex_, 1);
    }
    const Session& session = *sessions_[i];
    if (!first.is_of_model(session.policy_.get(), session.replicas())) {
      fail(ErrorKind::mismatch, "sessions", "sessions must all be of one policy; session ", i,
           " is of another policy than session 0");
    }
    if (!session.history_.carried()) numbered = true;
    session.history_.prefetch();
  }
  for (std::size_t i = 0; i < sessions_.size(); ++i) {
    add(*sessions_[i], static_cast<std::int64_t>(i), numbered);
  }
  for (Part& part : parts_) {
    if (!part.moving.empty()) part.to = part.from;
  }
  if (is_one_batch()) parts_[0].rows.clear();
}

void SessionGroup::add(Session& session, std::int64_t row, bool numbered) {
  Policy* const policy = session.policy_.get();
  auto part =
      std::find_if(parts_.begin(), parts_.end(), [&](const Part& other) { return other.policy == policy; });
  if (part == parts_.end()) {
    part = parts_.insert(part, Part{policy, {}, {}, {}, {}, {}, nullptr});
    part->from.reserve(sessions_.size());
    if (numbered) part->rows.reserve(sessions_.size());
  }
  const History& history = session.history_;
  if (!history.carried()) return part->windows.push_back({&session, row, false});
  if (history.moves()) part->moving.push_back({&session, part->from.size()});
  part->from.push_back(history.moves() ? nullptr : history.first_state());
  if (numbered) part->rows.push_back(row);
}

bool SessionGroup::has(const Session& session) const {
  return std::find(sessions_.begin(), sessions_.end(), &session) != sessions_.end();
}

void SessionGroup::keep() {
  in_address_order_ = GroupLocks::in_address_order(sessions_);
  claiming_.claim = std::make_shared<GroupClaim>();
  for (Part& part : parts_) {
    const auto carried = static_cast<std::int64_t>(part.from.size());
    if (carried > 0) part.policy->reserve_batch(carried, 1);
    std::int64_t longest = 0;
    for (const Part::Windowed& windowed : part.windows)
      longest = std::max(longest, windowed.session->window_->frames());
    const auto windows = static_cast<std::int64_t>(part.windows.size());
    if (longest > 0) part.policy->reserve_windows(windows, longest), part.policy->reserve_batch(windows, 1);
    part.memory = part.policy->group_memory(carried);
  }
}

bool SessionGroup::is_one_batch() const {
  return parts_.size() == 1 && parts_[0].windows.empty();
}

// With all locks: refuses frames that the policy does not look at itself, and tells the sessions' paces.
void SessionGroup::begin(const float* obs) {
  const Session& first = *sessions_[0];
  const auto count = static_cast<std::int64_t>(sessions_.size());
  if (!is_one_batch() || !first.policy_->checks_frames(count)) {
    const std::int64_t d_input = first.policy_->config().d_input;
    require_finite(obs, count * d_input, d_input, "obs");
  }
  tell_paces();
}

void SessionGroup::tell_paces() {
  for (Session* session : sessions_) session->frame_arrived();
}

void SessionGroup::step_locked(const float* obs, float* out) {
  parts_.size() == 1 ? step_part(parts_[0], obs, out) : step_devices(obs, out);
  advance_histories();
}

void SessionGroup::advance_histories() {
  for (const Part& part : parts_) {
    for (const Part::Moving& moving : part.moving) moving.session->history_.advance();
    for (const auto& [session, row, begun] : part.windows) {
      session->history_.advance();
      if (session->ahead_) session->ahead_->want(begun);
    }
  }
}

// The states of the frames that were computed are in entries that no session goes back to, so that all
// sessions are where they were when a device has failed. Only the windows have to be restored.
void SessionGroup::step_devices(const float* obs, float* out) {
  const auto errors = sessions_[0]->place_->replicas()->run(
      parts_.size(), [&](std::size_t number) { step_part(parts_[number], obs, out); });
  const auto failed =
      std::find_if(errors.begin(), errors.end(), [](const auto& error) { return error != nullptr; });
  if (failed == errors.end()) return;
  for (std::size_t number = 0; number < parts_.size(); ++number) {
    if (errors[number]) continue;  // this one has restored its windows
    for (const Part::Windowed& windowed : parts_[number].windows) windowed.session->window_->undo(1);
  }
  std::rethrow_exception(*failed);
}

void SessionGroup::step_part(Part& part, const float* obs, float* out) {
  part.windows.empty() ? step_carried(part, obs, out) : step_with_windows(part, obs, out);
}

GroupStates SessionGroup::states_of(Part& part) {
  for (std::size_t i = 0; i < part.moving.size(); ++i) {
    if (i + GroupLocks::kAhead < part.moving.size())
      part.moving[i + GroupLocks::kAhead].session->history_.prefetch();
    const auto& [session, at] = part.moving[i];
    part.from[at] = session->history_.state();
    part.to[at] = session->history_.state(1);
  }
  const std::vector<State*>& to = part.to.empty() ? part.from : part.to;
  for (const State* state : part.from) __builtin_prefetch(state);
  for (const State* state : part.to) __builtin_prefetch(state);
  return {part.from.data(), to.data(), part.memory.get()};
}

void SessionGroup::step_carried(Part& part, const float* obs, float* out) {
  const GroupStates states = states_of(part);
  part.policy->advance_group(states.from, states.to, static_cast<std::int64_t>(part.from.size()),
                             part.rows.empty() ? nullptr : part.rows.data(), obs, out, states.kept);
}

// One call for the frames that were begun ahead, which are steps from their states, one for the other
// windows, and one for the carried states. A call that fails changes no carried state, and the windows are
// restored.
void SessionGroup::step_with_windows(Part& part, const float* obs, float* out) {
  const auto d_input = part.policy->config().d_input, d_output = part.policy->config().d_output;
  const std::size_t count = part.windows.size();
  std::vector<float> answers(count * static_cast<std::size_t>(d_output));
  std::vector<State*> from, to;
  std::vector<std::int64_t> rows;
  std::vector<AgentWindow> windows;
  std::vector<Part::Windowed> whole;
  from.reserve(count), to.reserve(count), rows.reserve(count);  // nothing throws between two windows
  windows.reserve(count), whole.reserve(count);
  for (Part::Windowed& windowed : part.windows) {
    Session& session = *windowed.session;
    windowed.begun = session.ahead_ && session.ahead_->is_ready(*session.window_, WindowAhead::Wait::no);
    session.window_->push(obs + windowed.row * d_input);
    if (windowed.begun) {
      from.push_back(&session.ahead_->state()), to.push_back(&session.ahead_->next());
      rows.push_back(windowed.row);
    } else {
      windows.push_back(session.agent_window());
      whole.push_back(windowed);
    }
  }
  try {
    if (!from.empty()) {
      part.policy->advance_rows(from.data(), to.data(), static_cast<std::int64_t>(from.size()), rows.data(),
                                obs, out);
    }
    if (!windows.empty()) {
      part.policy->answer_windows(windows.data(), static_cast<std::int64_t>(windows.size()), answers.data());
    }
    if (!part.from.empty()) step_carried(part, obs, out);
  } catch (...) {
    for (const Part::Windowed& windowed : part.windows) windowed.session->window_->undo(1);
    throw;
  }
  const float* answer = answers.data();
  for (std::size_t k = 0; k < windows.size(); ++k, answer += d_output) {
    std::copy_n(answer, d_output, out + whole[k].row * d_output);
    if (windows[k].in_ring) whole[k].session->window_->set_held(windows[k].ring_windows);
  }
}

void SessionGroup::choose(const float* logits, std::vector<Action>* actions) {
  const std::int64_t d_output = sessions_[0]->policy_->config().d_output;
  for (std::size_t i = 0; i < sessions_.size(); ++i) {
    (*actions)[i] = sessions_[i]->choose_locked(logits + static_cast<std::int64_t>(i) * d_output);
  }
}

template <class Then>
void SessionGroup::step_then(const float* obs, float* out, Then then) {
  const GroupLocks locks(sessions_, in_address_order_, claiming_);
  begin(obs);
  step_locked(obs, out);
  then();
}

// With its claim the group has all of its sessions, and none of them ends.
template <class Then>
bool SessionGroup::step_if_then(const IsRight& is_right, const float* obs, float* out, Then then) {
  if (!is_one_batch() || !claiming_.claim) return false;
  const auto claimed = claiming_.claim->try_enter();
  if (!claimed) return false;
  Part& part = parts_[0];
  const auto ask = [&] {
    if (!is_right()) return false;
    tell_paces();
    return true;
  };
  const auto count = static_cast<std::int64_t>(sessions_.size());
  if (!part.policy->advance_group_if(ask, states_of(part), count, obs, out)) return false;
  advance_histories();
  then();
  return true;
}

void SessionGroup::step(const float* obs, float* out) {
  step_then(obs, out, [] {});
}

bool SessionGroup::step_if(const IsRight& is_right, const float* obs, float* out) {
  return step_if_then(is_right, obs, out, [] {});
}

std::vector<Action> SessionGroup::act(const float* obs, float* logits) {
  require_controller(parts_[0].policy->config(), "sessions");
  std::vector<Action> actions(sessions_.size());
  step_then(obs, logits, [&] { choose(logits, &actions); });
  return actions;
}

std::optional<std::vector<Action>> SessionGroup::act_if(const IsRight& is_right, const float* obs,
                                                        float* logits) {
  require_controller(parts_[0].policy->config(), "sessions");
  std::vector<Action> actions(sessions_.size());
  if (!step_if_then(is_right, obs, logits, [&] { choose(logits, &actions); })) return std::nullopt;
  return actions;
}

}  // namespace exphil::core
