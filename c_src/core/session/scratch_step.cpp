#include "core/session/scratch_step.hpp"

#include <algorithm>
#include <utility>

namespace exphil::core {

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

void ScratchStep::measure() noexcept {
  if (!split_) return;
  run();
  const Clock::time_point begin = Clock::now();
  run();
  again_ = std::max(Clock::now() - begin, Clock::duration(1));
  first_ = 2 * again_;
}

bool ScratchStep::run_within(Clock::duration left) {
  using std::chrono::microseconds;
  if (in_progress_ && !split_->finish_within(microseconds(0), out_.data())) return false;
  in_progress_ = false;
  split_->begin(*zeros_, *scratch_, obs_.data());
  in_progress_ = true;
  const auto bound = std::chrono::duration_cast<microseconds>(std::min<Clock::duration>(left, kPatience));
  in_progress_ = !split_->finish_within(bound, out_.data());
  return !in_progress_;
}

// The first step finds everything asleep. A GPU that it wakes answers slowly again some 100 us later, so the
// last steps end shortly before `end`.
//
// A single slow step, of a thread that lost its core, should not end the warming: what is expected grows by a
// quarter at most. Where it does not fit it shrinks until it is tried again, at 60 FPS after some seconds.
bool ScratchStep::run_until(Clock::time_point end, PollingPlace& place) noexcept {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || again_ == Clock::duration(0)) return false;
  bool came = false;
  try {
    for (Clock::time_point now = Clock::now(); now < end;) {
      Clock::duration& expected = came ? again_ : first_;
      const Clock::duration needed = expected + expected / 4;
      if (now + needed > end) break;
      if (came && !place.poll_until(end - std::max<Clock::duration>(kLast, needed), end - now)) break;
      const Clock::time_point begin = Clock::now();
      if (!run_within(end - begin)) break;
      now = Clock::now();
      expected = std::min(now - begin, expected + expected / 4);
      came = true;
    }
  } catch (const WouldWait&) {
  } catch (...) {
  }
  if (!came) first_ = std::max(first_ - first_ / 1024, 2 * again_);
  return came;
}

}  // namespace exphil::core
