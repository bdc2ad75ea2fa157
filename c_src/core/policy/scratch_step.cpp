#include "core/policy/scratch_step.hpp"

#include <algorithm>
#include <utility>

namespace exphil::core {

using Clock = std::chrono::steady_clock;

ScratchStep::ScratchStep(std::shared_ptr<Policy> policy)
    : policy_(std::move(policy)),
      zeros_(policy_->new_state()),
      scratch_(policy_->new_state()),
      obs_(static_cast<std::size_t>(policy_->config().d_input)),
      out_(static_cast<std::size_t>(policy_->config().d_output)),
      split_(policy_->split_step()) {}

void ScratchStep::run() noexcept {
  State *const from = zeros_.get(), *const to = scratch_.get();
  try {
    policy_->advance(&from, &to, 1, obs_.data(), out_.data());
  } catch (...) {
  }
}

bool ScratchStep::run_until(Clock::time_point end) noexcept {
  using std::chrono::microseconds;
  if (!split_ || end - Clock::now() < kLeastTime) return false;
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  try {
    if (in_progress_ && !split_->finish_within(microseconds(0), out_.data())) return false;
    in_progress_ = false;
    split_->begin(*zeros_, *scratch_, obs_.data());
    in_progress_ = true;
    const auto left = std::chrono::duration_cast<microseconds>(end - Clock::now());
    in_progress_ =
        !split_->finish_within(std::clamp(left, microseconds(0), microseconds(kPatience)), out_.data());
    return !in_progress_;
  } catch (const WouldWait&) {
  } catch (...) {
  }
  return false;
}

}  // namespace exphil::core
