// The calls of a Session that save and replace its state; see session.hpp.
#include <utility>

#include "core/error.hpp"
#include "core/session/session.hpp"
#include "core/session/state_codec.hpp"

namespace exphil::core {

namespace {

StateValues read_values(Policy& policy, const State& state) {
  StateValues values;
  values.carried.resize(static_cast<std::size_t>(policy.config().state_floats()));
  policy.read_state(state, values.carried.data());
  return values;
}

// A full window lacks the frames before it, which a longer one would need. A state of an earlier version of
// this library does not say whether its window was full, unless it has as many frames as this one.
void require_same_window(const StateValues& values, std::int64_t held, std::int64_t window) {
  if (values.window == 0 && held != 0 && held != window) {
    fail(ErrorKind::mismatch, "state", "the exported state, of an earlier version, holds ", held,
         " frames and does not say of how long a window; this session's window has ", window);
  }
  if (values.window != 0 && values.window != window) {
    fail(ErrorKind::mismatch, "state", "the exported state is that of a window of ", values.window,
         " frames; this session's window has ", window);
  }
}

}  // namespace

std::unique_ptr<Snapshot> Session::snapshot(bool may_wait) {
  std::unique_ptr<State> copy = window_ ? nullptr : policy_->new_state();
  const Lock lock = lock_for_step(may_wait);
  if (copy) policy_->copy_state(*copy, *history_.state());
  std::shared_ptr<const Replicas> replicas = place_ ? place_->replicas() : nullptr;
  return std::make_unique<Snapshot>(policy_, std::move(replicas), std::move(copy), window_, history_.play());
}

void Session::restore(const Snapshot& snapshot, bool may_wait) {
  if (!is_of_model(snapshot.policy().get(), snapshot.replicas())) {
    fail(ErrorKind::mismatch, "snapshot", "the snapshot was taken from a session of another policy");
  }
  const std::optional<FrameWindow>& other = snapshot.window();
  if (other.has_value() != window_.has_value() ||
      (other && (other->frames() != window_->frames() || other->pad() != window_->pad()))) {
    fail(ErrorKind::mismatch, "snapshot",
         "the snapshot was taken from a session with another window or padding");
  }
  const bool moves = !window_ && snapshot.policy() != policy_;
  if (moves && !may_wait) throw WouldWait{};
  StateValues moved;
  if (moves) moved = read_values(*snapshot.policy(), *snapshot.state());
  const Lock lock = lock_for_step(may_wait);
  if (window_) {
    window_->assign(*other);
  } else if (moves) {
    policy_->write_state(*history_.state(), moved.carried.data());
  } else {
    policy_->copy_state(*history_.state(), *snapshot.state());
  }
  history_.play() = snapshot.play();
  history_.begin_anew();
}

std::vector<std::uint8_t> Session::export_state() {
  const std::lock_guard<SessionMutex> lock(mutex_);
  StateValues values;
  if (!window_) values = read_values(*policy_, *history_.state());
  if (window_) values.frames = window_->kept_frames(), values.window = window_->frames();
  values.play = history_.play();
  return encode_state(policy_->config(), policy_->fingerprint(), values);
}

void Session::import_state(const std::uint8_t* bytes, std::size_t size) {
  const StateValues values = decode_state(policy_->config(), policy_->fingerprint(), bytes, size);
  if (values.frames.has_value() != window_.has_value()) {
    fail(ErrorKind::mismatch, "state", "the exported state is that of a session with", window_ ? "out" : "",
         " a window; this session has ", window_ ? "one" : "none");
  }
  const std::lock_guard<SessionMutex> lock(mutex_);
  if (window_) {
    const std::int64_t width = policy_->config().d_input;
    const auto floats = static_cast<std::int64_t>(values.frames->size());
    require_same_window(values, floats / width, window_->frames());
    FrameWindow next(width, window_->frames(), window_->pad(), history_.frames());
    for (std::int64_t at = 0; at < floats; at += width) next.push(values.frames->data() + at);
    std::swap(*window_, next);
  } else {
    policy_->write_state(*history_.state(), values.carried.data());
  }
  history_.play() = values.play;
  history_.begin_anew();
}

}  // namespace exphil::core
