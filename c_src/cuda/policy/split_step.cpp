#include "cuda/policy/split_step.hpp"

#include <algorithm>

#include "cuda/device/slow_call.hpp"

namespace exphil::cuda {

namespace {

// A frame that follows another one so soon is launched ahead; others would expire.
constexpr std::chrono::microseconds kSoon{500};
constexpr int kMostWasted = 6;  // after n wasted launches ahead, 2^n - 1 frames go without

}  // namespace

CudaSplitStep::CudaSplitStep(Context& context, StateArena& arena, FusedSteps& steps,
                             std::optional<core::Policy::Frames> armed)
    : context_(context),
      arena_(arena),
      steps_(steps),
      armed_(armed.has_value()),
      chains_(armed == core::Policy::Frames::one_after_another) {
  if (!armed) return;
  const ContextGuard guard(context_);
  steps_.prepare_armed();
  arena_.reserve(2);
}

CudaSplitStep::~CudaSplitStep() {
  if (ticket_) drop();
  drop_ahead();
}

void CudaSplitStep::begin(const core::State& from, core::State& to, const float* obs) {
  context_.require_alive();
  if (SlowCall::in_progress()) throw core::WouldWait{};
  const CudaState& source = state_of(arena_, from);
  state_of(arena_, to);
  to_ = &to;
  if (!ring(source, obs)) launch(source, obs);
  if (chains_ && expects_soon()) launch_ahead(next_->places()->to);
}

// The frame through the launch that waits for it. False where there is none for this state.
bool CudaSplitStep::ring(const CudaState& source, const float* obs) {
  if (!ahead_.ticket) return false;
  if (as_pointer<float>(source.slot()) != ahead_.place.from || !steps_.ring(*ahead_.ticket, obs)) {
    wasted_ = std::min(wasted_ + 1, kMostWasted);
    rest_ = (1 << wasted_) - 1;
    drop_ahead();
    return false;
  }
  wasted_ = rest_ = 0;
  obs_.assign(obs, obs + steps_.d_input());
  next_.emplace(arena_, source, &to_, reinterpret_cast<CUdeviceptr>(ahead_.place.to));
  ticket_ = std::move(ahead_.ticket);
  rung_ = true;
  return true;
}

void CudaSplitStep::launch(const CudaState& source, const float* obs) {
  const ContextGuard guard(context_);
  next_.emplace(arena_, source, &to_, arena_.take_at_once());
  try {
    ticket_ = steps_.begin(*next_->places(), obs);
  } catch (...) {
    next_.reset();
    throw;
  }
}

// The frame that was rung, where its launch has ended without it. False where that would have to wait.
bool CudaSplitStep::launch_again(bool may_wait) {
  try {
    const ContextGuard guard(context_);
    steps_.begin_again(*ticket_, *next_->places(), obs_.data(), may_wait);
  } catch (const core::WouldWait&) {
    return false;
  }
  rung_ = false;
  return true;
}

void CudaSplitStep::launch_ahead(const float* from) noexcept {
  drop_ahead();
  try {
    const ContextGuard guard(context_);
    const CUdeviceptr to = arena_.take_at_once();
    ahead_.place = {from, as_pointer<float>(to)};
    try {
      ahead_.ticket = steps_.begin_ahead(ahead_.place);
    } catch (...) {
    }
    if (!ahead_.ticket) arena_.give_back(to);
  } catch (...) {  // the next frame is launched as always, and reports what is wrong
  }
}

// The slot may be used again at once: a launch that was not rung writes no state.
void CudaSplitStep::drop_ahead() noexcept {
  if (!ahead_.ticket) return;
  steps_.cancel(*ahead_.ticket);
  steps_.end(std::move(ahead_.ticket));
  arena_.give_back(reinterpret_cast<CUdeviceptr>(ahead_.place.to));
}

bool CudaSplitStep::expects_soon() noexcept {
  const Clock::time_point now = Clock::now();
  const bool soon = now - last_frame_ < kSoon;
  last_frame_ = now;
  if (!soon || rest_ == 0) return soon;
  --rest_;
  return false;
}

void CudaSplitStep::arm(const core::State& from) noexcept {
  if (!armed_ || ticket_ || context_.lost() || SlowCall::in_progress()) return;
  const auto* const source = as_pointer<float>(state_of(arena_, from).slot());
  if (ahead_.ticket && ahead_.place.from == source && steps_.waits(*ahead_.ticket)) return;
  launch_ahead(source);
}

bool CudaSplitStep::finish_within(std::chrono::microseconds time, float* out) {
  const Clock::time_point end = Clock::now() + time;
  try {
    if (rung_) {
      if (steps_.poll_rung(*ticket_, out, time.count())) return succeed(), true;
      if (!steps_.ended(*ticket_) || SlowCall::in_progress() || !launch_again(false)) return false;
      time = std::max(std::chrono::duration_cast<std::chrono::microseconds>(end - Clock::now()),
                      std::chrono::microseconds(0));
    }
  } catch (...) {
    drop();
    throw;
  }
  if (!steps_.poll(*ticket_, out, time.count())) return false;
  succeed();
  return true;
}

void CudaSplitStep::finish(float* out) {
  try {
    const ContextGuard guard(context_);
    if (rung_ && !steps_.collect_rung(*ticket_, out)) launch_again(true);
    if (!rung_) steps_.collect(*ticket_, out);
  } catch (...) {
    drop();
    throw;
  }
  succeed();
}

void CudaSplitStep::succeed() noexcept {
  next_->commit();
  end();
}

void CudaSplitStep::drop() noexcept {
  drop_ahead();  // it reads what this frame does not write
  steps_.drain();
  end();
}

void CudaSplitStep::end() noexcept {
  next_.reset();
  steps_.end(std::move(ticket_));
  rung_ = false;
}

}  // namespace exphil::cuda
