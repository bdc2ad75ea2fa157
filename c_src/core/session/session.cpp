#include "core/session/session.hpp"

#include <algorithm>
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

}  // namespace

Session::Session(std::shared_ptr<Policy> policy, const SessionOptions& options,
                 std::shared_ptr<Gatherer> gatherer, std::optional<Replicas::Place> place)
    : policy_(std::move(policy)),
      history_(*policy_, checked_history(options.history), options.window == 0, place.has_value()),
      place_(std::move(place)),
      gatherer_(options.armed ? nullptr : std::move(gatherer)),
      rules_(options.rules) {
  const auto make_split = [&](Policy::Frames frames) {
    return options.armed ? policy_->armed_step(frames) : policy_->split_step();
  };
  if (options.window > 0) {
    window_.emplace(policy_->config().d_input, options.window, options.pad, options.history);
    ring_ = policy_->new_ring(window_->capacity());
    if (ring_) split_window_ = ring_->split();
    split_ = make_split(Policy::Frames::each_by_itself);
    ahead_ = WindowAhead::make(*this, *policy_, options.window);
    if (!ahead_) split_ = nullptr;
  } else {
    split_ = make_split(Policy::Frames::one_after_another);
  }
  if (options.pace != 0) pace_ = std::make_unique<Pace>(policy_, options.pace);
  if (gatherer_) gatherer_->add_session(window_ ? window_->frames() : 0);
}

Session::~Session() {
  if (ahead_) ahead_->end();  // before all else: its thread locks the session
  if (ahead_ && split_) split_->disarm();
  mutex_.end_claim();
  for (const auto& watcher : watchers_) {
    if (const auto told = watcher.lock()) told->ended(*this);
  }
  if (gatherer_) gatherer_->remove_session(window_ ? window_->frames() : 0);
}

void Session::tell_when_it_ends(const std::shared_ptr<SessionWatcher>& watcher) {
  const std::lock_guard<std::mutex> lock(watchers_mutex_);
  const auto is_it = [&](const std::weak_ptr<SessionWatcher>& other) {
    return !other.owner_before(watcher) && !watcher.owner_before(other);
  };
  if (std::none_of(watchers_.begin(), watchers_.end(), is_it)) watchers_.push_back(watcher);
}

void Session::set_pace(MicroHertz rate) {
  std::unique_ptr<Pace> pace = rate == 0 ? nullptr : std::make_unique<Pace>(policy_, rate);
  const std::lock_guard<SessionMutex> lock(mutex_);
  std::swap(pace_, pace);
}

void Session::arm() noexcept {
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !split_) return;
  if (!window_) return split_->arm(*history_.state());
  if (ahead_->is_ready(*window_, WindowAhead::Wait::no)) split_->arm(ahead_->state());
}

std::chrono::microseconds Session::proceed_ahead() noexcept {
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return WindowAhead::kRetry;
  if (split_) split_->disarm();  // of the state before
  return ahead_->proceed(*window_);
}

Session::Lock Session::lock_for_step(bool may_wait) {
  if (may_wait) return Lock(mutex_);
  Lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) throw WouldWait{};
  return lock;
}

void Session::step_locked(const float* obs, float* out, bool may_wait) {
  const auto wait = may_wait ? WindowAhead::Wait::yes : WindowAhead::Wait::no;
  const bool begun = ahead_ && ahead_->is_ready(*window_, wait);
  if (ahead_ && !begun && !may_wait) throw WouldWait{};
  frame_arrived();
  if (begun) {
    State *const from = &ahead_->state(), *const to = &ahead_->next();
    policy_->advance(&from, &to, 1, obs, out);
    window_->push(obs);
  } else if (window_) {
    step_window(obs, out);
  } else {
    State *const from = history_.state(), *const to = history_.state(1);
    policy_->advance(&from, &to, 1, obs, out);
  }
  history_.advance();
  if (ahead_) ahead_->want(begun);
}

// Of a frame that has been pushed to the window, where there is one.
template <class Work>
void Session::or_undo_push(Work work) {
  try {
    work();
  } catch (...) {
    if (window_) window_->undo(1);
    throw;
  }
}

void Session::step_split(Lock& lock, const float* obs, float* out, Noise* noise) {
  begin_split(obs);
  frame_arrived();
  if (noise != nullptr) prepare_noise_locked(noise);
  if (finish_split_within(kPatience, out)) return;
  std::shared_ptr<LateFrame> late;
  try {
    late = std::make_shared<LateFrame>(*this, noise != nullptr);
  } catch (const std::bad_alloc&) {
    return finish_split(out);
  }
  lock.release()->hand_over(late);
  throw Late{std::move(late)};
}

void Session::begin_split(const float* obs) {
  in_progress_ = split_.get();
  if (!window_) return split_->begin(*history_.state(), *history_.state(1), obs);
  const bool begun = ahead_ && ahead_->is_ready(*window_, WindowAhead::Wait::yes);
  if (!begun && split_window_ == nullptr) throw WouldWait{};
  if (!begun) in_progress_ = split_window_;
  window_->push(obs);
  or_undo_push([&] {
    if (!begun) return split_window_->begin(window_->ring_windows(1));
    split_->begin(ahead_->state(), ahead_->next(), obs);
  });
  if (ahead_) ahead_->want(begun);
}

bool Session::finish_split_within(std::chrono::microseconds time, float* out) {
  bool there = false;
  or_undo_push([&] { there = in_progress_->finish_within(time, out); });
  if (there) end_split();
  return there;
}

void Session::finish_split(float* out) {
  or_undo_push([&] { in_progress_->finish(out); });
  end_split();
}

void Session::end_split() {
  if (in_progress_ == split_window_) window_->set_held(window_->ring_windows(1));
  history_.advance();
}

void Session::step_window(const float* obs, float* out) {
  window_->push(obs);
  or_undo_push([&] { answer_windows(*window_, 1, out); });
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
  acts_.store(false, std::memory_order_relaxed);
  if (may_wait || !has_splits()) return step_locked(obs, out, may_wait);
  step_split(lock, obs, out, nullptr);
}

Action Session::act(const float* obs, float* logits, bool may_wait) {
  require_controller(policy_->config(), "session");
  Lock lock = lock_for_step(may_wait);
  acts_.store(true, std::memory_order_relaxed);
  if (may_wait || !has_splits()) {
    step_locked(obs, logits, may_wait);
    return choose_locked(logits);
  }
  Noise noise;
  step_split(lock, obs, logits, &noise);
  return choose_locked(logits, noise);
}

void Session::submit(GatheredFramePtr frame, bool may_wait) {
  if (frame->acts()) require_controller(policy_->config(), "session");
  Lock lock = lock_for_step(may_wait);
  frame_arrived();
  acts_.store(frame->acts(), std::memory_order_relaxed);
  if (frame->acts()) {
    if (!frame->noise_) frame->noise_ = std::make_unique<Noise>();
    prepare_noise_locked(frame->noise_.get());
  }
  gatherer_->submit(std::move(frame));
  lock.release();  // the gatherer unlocks
}

void Session::prefill(const float* frames, std::int64_t seq, float* out) {
  if (seq == 0) return;
  const std::lock_guard<SessionMutex> lock(mutex_);
  if (window_) {
    run_windows(0, frames, seq, out);
  } else {
    policy_->prefill(*history_.state(), frames, seq, out);
  }
  history_.begin_anew();
}

}  // namespace exphil::core
