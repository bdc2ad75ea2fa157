#include "core/session/session.hpp"

#include <algorithm>
#include <functional>
#include <new>
#include <utility>

#include "core/error.hpp"

namespace exphil::core {

namespace {

std::int64_t checked_history(std::int64_t frames) {
  if (frames < 0 || frames > kMostHistory) {
    fail(ErrorKind::limit_exceeded, ":history", ":history must be from 1 to ", kMostHistory, " frames, got ",
         frames);
  }
  return frames;
}

void require_same_policy(const std::vector<Session*>& sessions) {
  for (std::size_t i = 1; i < sessions.size(); ++i) {
    if (sessions[i]->policy() != sessions[0]->policy()) {
      fail(ErrorKind::mismatch, "sessions", "sessions must all be of one model; session ", i,
           " is of another model than session 0");
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

Session::Session(std::shared_ptr<Policy> policy, const SessionOptions& options,
                 std::shared_ptr<Gatherer> gatherer)
    : policy_(std::move(policy)),
      gatherer_(options.armed ? nullptr : std::move(gatherer)),
      rules_(options.rules),
      history_(*policy_, checked_history(options.history), options.window == 0) {
  if (options.window > 0 && options.armed) {
    fail(ErrorKind::unsupported, ":latency",
         "latency: :armed needs a carried state; a session with a window has none");
  }
  if (options.window > 0) {
    window_.emplace(policy_->config().d_input, options.window, options.pad, options.history);
    ring_ = policy_->new_ring(window_->capacity());
  } else {
    split_ = options.armed ? policy_->armed_step() : policy_->split_step();
  }
  if (options.pace != 0) pace_ = std::make_unique<Pace>(policy_, options.pace);
  if (gatherer_) gatherer_->add_session();
}

Session::~Session() {
  if (gatherer_) gatherer_->remove_session();
}

void Session::set_pace(MicroHertz rate) {
  std::unique_ptr<Pace> pace = rate == 0 ? nullptr : std::make_unique<Pace>(policy_, rate);
  const std::lock_guard<HandoverMutex> lock(mutex_);
  std::swap(pace_, pace);
}

void Session::arm() noexcept {
  const Lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock() && split_) split_->arm(*history_.state());
}

Session::Lock Session::lock_for_step(bool may_wait) {
  if (may_wait) return Lock(mutex_);
  Lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) throw WouldWait{};
  return lock;
}

void Session::step_locked(const float* obs, float* out) {
  frame_arrived();
  if (window_) {
    step_window(obs, out);
  } else {
    State *const from = history_.state(), *const to = history_.state(1);
    policy_->advance(&from, &to, 1, obs, out);
  }
  history_.advance();
}

void Session::step_split(Lock& lock, const float* obs, float* out, Noise* noise) {
  frame_arrived();
  split_->begin(*history_.state(), *history_.state(1), obs);
  if (noise != nullptr) prepare_noise_locked(noise);
  if (split_->finish_within(kPatience, out)) return history_.advance();
  std::shared_ptr<LateFrame> late;
  try {
    late = std::make_shared<LateFrame>(*this, noise != nullptr);
  } catch (const std::bad_alloc&) {
    return finish_split(out);
  }
  lock.release()->hand_over(late);
  throw Late{std::move(late)};
}

void Session::finish_split(float* out) {
  split_->finish(out);
  history_.advance();
}

void Session::step_window(const float* obs, float* out) {
  window_->push(obs);
  try {
    answer_windows(*window_, 1, out);
  } catch (...) {
    window_->undo(1);
    throw;
  }
}

void Session::answer_windows(FrameWindow& window, std::int64_t count, float* out) {
  const RingWindows windows = window.ring_windows(count);
  ring_->answer(windows, out);
  window.set_held(windows);
}

AgentWindow Session::agent_window() const {
  return {ring_.get(), window_->ring_windows(1), window_->data(), false};
}

void Session::prepare_noise_locked(Noise* noise) {
  prepare_noise(policy_->config(), rules_, history_.play().frame, nullptr, noise);
}

Action Session::choose_locked(const float* logits, const Noise& noise) {
  const Action action = choose_action(policy_->config(), rules_, history_.play(), logits, noise);
  core::advance(&history_.play(), action);
  return action;
}

Action Session::choose_locked(const float* logits) {
  Noise noise;
  prepare_noise_locked(&noise);
  return choose_locked(logits, noise);
}

void Session::step(const float* obs, float* out, bool may_wait) {
  Lock lock = lock_for_step(may_wait);
  if (may_wait || !split_) return step_locked(obs, out);
  step_split(lock, obs, out, nullptr);
}

Action Session::act(const float* obs, float* logits, bool may_wait) {
  require_controller(policy_->config(), "session");
  Lock lock = lock_for_step(may_wait);
  if (may_wait || !split_) {
    step_locked(obs, logits);
    return choose_locked(logits);
  }
  Noise noise;
  step_split(lock, obs, logits, &noise);
  return choose_locked(logits, noise);
}

void Session::submit(std::unique_ptr<GatheredFrame> frame, bool may_wait) {
  if (frame->acts()) require_controller(policy_->config(), "session");
  Lock lock = lock_for_step(may_wait);
  frame_arrived();
  if (frame->acts()) prepare_noise_locked((frame->noise_ = std::make_unique<Noise>()).get());
  gatherer_->submit(std::move(frame));
  lock.release();  // the gatherer unlocks
}

void Session::prefill(const float* frames, std::int64_t seq, float* out) {
  if (seq == 0) return;
  const std::lock_guard<HandoverMutex> lock(mutex_);
  if (window_) {
    run_windows(0, frames, seq, out);
  } else {
    policy_->prefill(*history_.state(), frames, seq, out);
  }
  history_.begin_anew();
}

Session::Locks Session::lock_all(const std::vector<Session*>& sessions) {
  Locks locks;
  locks.reserve(sessions.size());
  for (Session* session : in_address_order(sessions)) locks.emplace_back(session->mutex_);
  return locks;
}

void Session::step_locked(const std::vector<Session*>& sessions, const float* obs, float* out) {
  std::vector<State*> from, to;
  from.reserve(sessions.size()), to.reserve(sessions.size());
  for (Session* session : sessions) {
    if (session->window_) continue;
    from.push_back(session->history_.state());
    to.push_back(session->history_.state(1));
  }
  if (from.size() == sessions.size()) {
    const auto count = static_cast<std::int64_t>(from.size());
    sessions[0]->policy_->advance(from.data(), to.data(), count, obs, out);
  } else {
    step_mixed(sessions, from, to, obs, out);
  }
  for (Session* session : sessions) session->history_.advance();
}

// One call for the windows, then one for the carried states. A call that fails changes no carried state, and
// the windows are restored.
void Session::step_mixed(const std::vector<Session*>& sessions, const std::vector<State*>& from_states,
                         const std::vector<State*>& to_states, const float* obs, float* out) {
  Policy& policy = *sessions[0]->policy_;
  const std::size_t carried = from_states.size(), windowed = sessions.size() - carried;
  const auto d_input = static_cast<std::size_t>(policy.config().d_input);
  const auto d_output = static_cast<std::size_t>(policy.config().d_output);
  std::vector<float> some_obs(carried * d_input), some_out(carried * d_output);
  std::vector<float> window_out(windowed * d_output);
  std::vector<AgentWindow> windows(windowed);
  auto window = windows.begin();
  float* next = some_obs.data();
  for (std::size_t k = 0; k < sessions.size(); ++k) {
    if (sessions[k]->window_) {
      sessions[k]->window_->push(obs + k * d_input);
      *window++ = sessions[k]->agent_window();
    } else {
      next = std::copy_n(obs + k * d_input, d_input, next);
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
    std::copy_n(row, d_output, out + k * d_output);
    row += d_output;
    if (!sessions[k]->window_) continue;
    if (window->in_ring) sessions[k]->window_->set_held(window->ring_windows);
    ++window;
  }
}

void Session::step_batch(const std::vector<Session*>& sessions, const float* obs, float* out) {
  if (sessions.empty()) return;
  require_same_policy(sessions);
  const Locks locks = lock_all(sessions);
  for (Session* session : sessions) session->frame_arrived();
  step_locked(sessions, obs, out);
}

std::vector<Action> Session::act_batch(const std::vector<Session*>& sessions, const float* obs,
                                       float* logits) {
  std::vector<Action> actions(sessions.size());
  if (sessions.empty()) return actions;
  require_same_policy(sessions);
  const PolicyConfig& config = sessions[0]->policy_->config();
  require_controller(config, "sessions");
  const Locks locks = lock_all(sessions);
  for (Session* session : sessions) session->frame_arrived();
  step_locked(sessions, obs, logits);
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    actions[i] = sessions[i]->choose_locked(logits + static_cast<std::int64_t>(i) * config.d_output);
  }
  return actions;
}

}  // namespace exphil::core
