#include "cuda/policy/split_step.hpp"

#include "cuda/device/slow_call.hpp"

namespace exphil::cuda {

CudaSplitStep::~CudaSplitStep() {
  if (ticket_) drop();
}

void CudaSplitStep::begin(const core::State& from, core::State& to, const float* obs) {
  context_.require_alive();
  if (SlowCall::in_progress()) throw core::WouldWait{};
  const ContextGuard guard(context_);
  const CudaState& source = state_of(arena_, from);
  to_ = const_cast<CudaState*>(&state_of(arena_, to));
  next_.emplace(arena_, source, &to_, arena_.take_at_once());
  try {
    ticket_ = steps_.begin(*next_->places(), obs);
  } catch (...) {
    next_.reset();
    throw;
  }
}

bool CudaSplitStep::finish_within(std::chrono::microseconds time, float* out) {
  if (!steps_.poll(*ticket_, out, time.count())) return false;
  succeed();
  return true;
}

void CudaSplitStep::finish(float* out) {
  try {
    const ContextGuard guard(context_);
    steps_.collect(*ticket_, out);
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
  steps_.drain();
  end();
}

void CudaSplitStep::end() noexcept {
  next_.reset();
  steps_.end(std::move(ticket_));
}

}  // namespace exphil::cuda
