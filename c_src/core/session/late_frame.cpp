#include "core/session/late_frame.hpp"

#include <algorithm>

#include "core/session/session.hpp"

namespace exphil::core {

LateFrame::LateFrame(Session& session, bool acts)
    : session_(session), acts_(acts), out_(static_cast<std::size_t>(session.policy()->config().d_output)) {}

void LateFrame::run() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (done_) return;
  done_ = true;
  try {
    session_.finish_split(out_.data());
    if (acts_) action_ = session_.choose_locked(out_.data());
  } catch (...) {
    error_ = std::current_exception();
  }
  session_.mutex_.unlock();
}

Action LateFrame::answer(float* out) {
  run();
  if (error_) std::rethrow_exception(error_);
  std::copy(out_.begin(), out_.end(), out);
  return action_;
}

}  // namespace exphil::core
