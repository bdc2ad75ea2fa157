// The calls of a Session that go back in its history; see session.hpp.
#include <utility>

#include "core/error.hpp"
#include "core/session/session.hpp"

namespace exphil::core {

namespace {

// Windows of one call are copied side by side, up to about this many floats (4 MB).
constexpr std::size_t kFloatsOfWindows = std::size_t{1} << 20;

}  // namespace

void Session::require_recorded(std::int64_t frames_back) const {
  if (frames_back == 0) return;
  if (frames_back < 0) {
    fail(ErrorKind::invalid_argument, "frames_back", "frames_back must be at least 0, got ", frames_back);
  }
  if (history_.frames() == 0) {
    fail(ErrorKind::unsupported, "session",
         "the session records no history; make it with new_session(policy, history: n)");
  }
  if (frames_back > history_.recorded()) {
    fail(ErrorKind::limit_exceeded, "frames_back", "the session can go back ", history_.recorded(),
         " frames now (history: ", history_.frames(), "), got ", frames_back);
  }
}

void Session::roll_back(std::int64_t frames, bool may_wait) {
  const Lock lock = lock_for_step(may_wait);
  require_recorded(frames);
  if (window_) window_->undo(frames);
  history_.go_back(frames);
}

std::int64_t Session::recorded(bool may_wait) {
  const Lock lock = lock_for_step(may_wait);
  return history_.recorded();
}

// Few frames are answered from the ring, which holds most of each window already. Many are not: their windows
// do not fit into the ring together, and are independent work for the backend's threads.
void Session::run_windows(std::int64_t back, const float* frames, std::int64_t seq, float* out) {
  const std::int64_t width = policy_->config().d_input, d_output = policy_->config().d_output;
  const bool from_ring = seq <= history_.frames() + 1;
  FrameWindow next = *window_;
  next.undo(back);
  std::vector<float> windows;
  std::int64_t done = 0;
  const auto answer = [&](std::int64_t end) {
    if (end > done && from_ring) answer_windows(next, end - done, out + done * d_output);
    if (end > done && !from_ring) {
      policy_->window(windows.data(), end - done, next.length(), out + done * d_output);
    }
    done = end;
    windows.clear();
  };
  try {
    for (std::int64_t t = 0; t < seq; ++t) {
      if (next.grows() || windows.size() >= kFloatsOfWindows) answer(t);
      next.push(frames + t * width);
      if (!from_ring) windows.insert(windows.end(), next.data(), next.data() + next.length() * width);
    }
    answer(seq);
  } catch (...) {
    window_->forget_held();  // new frames may be in the slots of those that were undone
    throw;
  }
  std::swap(*window_, next);
}

void Session::resimulate_locked(std::int64_t frames_back, const float* frames, std::int64_t seq, float* out) {
  frame_arrived();
  require_recorded(frames_back);
  if (seq > history_.frames()) {
    fail(ErrorKind::limit_exceeded, "frames", "resimulate takes at most as many frames as the history has, ",
         history_.frames(), "; got ", seq);
  }
  if (window_) {
    run_windows(frames_back, frames, seq, out);
  } else {
    std::vector<State*> to(static_cast<std::size_t>(seq));
    for (std::int64_t t = 0; t < seq; ++t) {
      to[static_cast<std::size_t>(t)] = history_.state(t + 1 - frames_back);
    }
    policy_->advance_chain(*history_.state(-frames_back), to.data(), seq, frames, out);
  }
  history_.go_back(frames_back);
}

void Session::resimulate(std::int64_t frames_back, const float* frames, std::int64_t seq, float* out,
                         bool may_wait) {
  const Lock lock = lock_for_step(may_wait);
  resimulate_locked(frames_back, frames, seq, out);
  for (std::int64_t t = 0; t < seq; ++t) history_.advance();
}

std::vector<Action> Session::resimulate_acts(std::int64_t frames_back, const float* frames, std::int64_t seq,
                                             float* logits, bool may_wait) {
  const PolicyConfig& config = policy_->config();
  require_controller(config, "session");
  std::vector<Action> actions(static_cast<std::size_t>(seq));
  const Lock lock = lock_for_step(may_wait);
  resimulate_locked(frames_back, frames, seq, logits);
  for (std::int64_t t = 0; t < seq; ++t) {
    history_.advance();
    actions[static_cast<std::size_t>(t)] = choose_locked(logits + t * config.d_output);
  }
  return actions;
}

}  // namespace exphil::core
