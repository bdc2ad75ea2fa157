// The calls of a Session for several agents at once; see session.hpp.
#include <algorithm>
#include <functional>
#include <utility>

#include "core/error.hpp"
#include "core/finite.hpp"
#include "core/session/session.hpp"

namespace exphil::core {

namespace {

std::vector<Session*> in_address_order(const std::vector<Session*>& sessions) {
  std::vector<Session*> ordered = sessions;
  std::sort(ordered.begin(), ordered.end(), std::less<Session*>());
  if (std::adjacent_find(ordered.begin(), ordered.end()) != ordered.end()) {
    fail(ErrorKind::invalid_argument, "sessions", "sessions must be distinct; a session appears twice");
  }
  return ordered;
}

// A batch asks for the memory of so many sessions ahead: of thousands no cache has it, and a session takes
// less time than its memory needs.
constexpr std::size_t kAhead = 16;

// The sessions of a batch that are on one device, and where they are in it.
struct Part {
  std::vector<Session*> sessions;
  std::vector<std::int64_t> rows;
};

std::vector<Part> parts_of(const std::vector<Session*>& sessions) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& other) {
      return other.sessions[0]->policy() == sessions[i]->policy();
    });
    if (part == parts.end()) {
      part = parts.emplace(part);
      part->sessions.reserve(sessions.size()), part->rows.reserve(sessions.size());
    }
    part->sessions.push_back(sessions[i]);
    part->rows.push_back(static_cast<std::int64_t>(i));
  }
  return parts;
}

}  // namespace

void Session::require_one_model(const std::vector<Session*>& sessions) {
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    if (i + kAhead < sessions.size()) {
      const Session* const later = sessions[i + kAhead];
      __builtin_prefetch(&later->policy_);
      __builtin_prefetch(&later->mutex_);
    }
    if (!sessions[0]->is_of_model(sessions[i]->policy_.get(), sessions[i]->replicas())) {
      fail(ErrorKind::mismatch, "sessions", "sessions must all be of one model; session ", i,
           " is of another model than session 0");
    }
  }
}

// To order thousands of sessions takes longer than to lock them, so they are ordered only where one of them
// is in use, or is there twice: nothing waits while it holds locks that were taken in another order.
Session::Locks Session::lock_all(const std::vector<Session*>& sessions) {
  Locks locks;
  locks.reserve(sessions.size());
  for (Session* session : sessions) {
    session->history_.prefetch();
    if (!locks.emplace_back(session->mutex_, std::try_to_lock).owns_lock()) break;
  }
  if (locks.empty() || locks.back().owns_lock()) return locks;
  locks.clear();
  for (Session* session : in_address_order(sessions)) locks.emplace_back(session->mutex_);
  return locks;
}

// Where the policy does not look at all of them.
void Session::require_finite_frames(const std::vector<Session*>& sessions, const float* obs) {
  const Session& first = *sessions[0];
  const auto count = static_cast<std::int64_t>(sessions.size());
  const auto carried = [](const Session* session) { return session->history_.carried(); };
  if (!first.place_ && first.policy_->checks_frames(count) &&
      std::all_of(sessions.begin(), sessions.end(), carried))
    return;
  const std::int64_t d_input = first.policy_->config().d_input;
  require_finite(obs, count * d_input, d_input, "obs");
}

void Session::step_locked(const std::vector<Session*>& sessions, const float* obs, float* out) {
  sessions[0]->place_ ? run_devices(sessions, obs, out) : run_locked(sessions, {}, obs, out);
  for (Session* session : sessions) session->history_.advance();
}

// The states of the frames that were computed are in entries that no session goes back to, so that all
// sessions are where they were when a device has failed. Only the windows have to be restored.
void Session::run_devices(const std::vector<Session*>& sessions, const float* obs, float* out) {
  const std::vector<Part> parts = parts_of(sessions);
  if (parts.size() == 1) return run_locked(sessions, {}, obs, out);
  const auto errors = sessions[0]->place_->replicas()->run(parts.size(), [&](std::size_t number) {
    run_locked(parts[number].sessions, parts[number].rows, obs, out);
  });
  const auto failed =
      std::find_if(errors.begin(), errors.end(), [](const auto& error) { return error != nullptr; });
  if (failed == errors.end()) return;
  for (std::size_t number = 0; number < parts.size(); ++number) {
    if (errors[number]) continue;  // this one has restored its windows
    for (Session* session : parts[number].sessions) {
      if (session->window_) session->window_->undo(1);
    }
  }
  std::rethrow_exception(*failed);
}

void Session::run_locked(const std::vector<Session*>& sessions, const Rows& rows, const float* obs,
                         float* out) {
  std::vector<State*> from, to;
  from.reserve(sessions.size()), to.reserve(sessions.size());
  for (Session* session : sessions) {
    if (!session->history_.carried()) continue;
    from.push_back(session->history_.state());
    to.push_back(session->history_.state(1));
    __builtin_prefetch(from.back());
    __builtin_prefetch(to.back());
  }
  Policy& policy = *sessions[0]->policy_;
  const auto count = static_cast<std::int64_t>(from.size());
  if (from.size() < sessions.size()) {
    step_mixed(sessions, from, to, rows, obs, out);
  } else if (rows.empty()) {
    policy.advance(from.data(), to.data(), count, obs, out);
  } else {
    policy.advance_rows(from.data(), to.data(), count, rows.data(), obs, out);
  }
}

// One call for the windows, then one for the carried states. A call that fails changes no carried state, and
// the windows are restored.
void Session::step_mixed(const std::vector<Session*>& sessions, const std::vector<State*>& from_states,
                         const std::vector<State*>& to_states, const Rows& rows, const float* obs,
                         float* out) {
  Policy& policy = *sessions[0]->policy_;
  const std::size_t carried = from_states.size(), windowed = sessions.size() - carried;
  const auto d_input = static_cast<std::size_t>(policy.config().d_input);
  const auto d_output = static_cast<std::size_t>(policy.config().d_output);
  const auto row_of = [&rows](std::size_t k) { return rows.empty() ? k : static_cast<std::size_t>(rows[k]); };
  std::vector<float> some_obs(carried * d_input), some_out(carried * d_output);
  std::vector<float> window_out(windowed * d_output);
  std::vector<AgentWindow> windows(windowed);
  auto window = windows.begin();
  float* next = some_obs.data();
  for (std::size_t k = 0; k < sessions.size(); ++k) {
    if (sessions[k]->window_) {
      sessions[k]->window_->push(obs + row_of(k) * d_input);
      *window++ = sessions[k]->agent_window();
    } else {
      next = std::copy_n(obs + row_of(k) * d_input, d_input, next);
    }
  }
  try {
    policy.answer_windows(windows.data(), static_cast<std::int64_t>(windowed), window_out.data());
    if (carried > 0)
      policy.advance(from_states.data(), to_states.data(), static_cast<std::int64_t>(carried),
                     some_obs.data(), some_out.data());
  } catch (...) {
    for (Session* session : sessions) {
      if (session->window_) session->window_->undo(1);
    }
    throw;
  }
  window = windows.begin();
  const float *from = some_out.data(), *from_window = window_out.data();
  for (std::size_t k = 0; k < sessions.size(); ++k) {
    const float*& row = sessions[k]->window_ ? from_window : from;
    std::copy_n(row, d_output, out + row_of(k) * d_output);
    row += d_output;
    if (!sessions[k]->window_) continue;
    if (window->in_ring) sessions[k]->window_->set_held(window->ring_windows);
    ++window;
  }
}

void Session::step_batch(const std::vector<Session*>& sessions, const float* obs, float* out) {
  if (sessions.empty()) return;
  require_one_model(sessions);
  const Locks locks = lock_all(sessions);
  require_finite_frames(sessions, obs);
  for (Session* session : sessions) session->frame_arrived();
  step_locked(sessions, obs, out);
}

std::vector<Action> Session::act_batch(const std::vector<Session*>& sessions, const float* obs,
                                       float* logits) {
  std::vector<Action> actions(sessions.size());
  if (sessions.empty()) return actions;
  require_one_model(sessions);
  const PolicyConfig& config = sessions[0]->policy_->config();
  require_controller(config, "sessions");
  const Locks locks = lock_all(sessions);
  require_finite_frames(sessions, obs);
  for (Session* session : sessions) session->frame_arrived();
  step_locked(sessions, obs, logits);
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    actions[i] = sessions[i]->choose_locked(logits + static_cast<std::int64_t>(i) * config.d_output);
  }
  return actions;
}

}  // namespace exphil::core
