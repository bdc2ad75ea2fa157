// A policy's frame in two parts: core::SplitStep over policy_step. Made by cuda/policy/policy.cpp, one for
// each session. One thread at a time.
#pragma once

#include <memory>
#include <optional>

#include "core/policy/policy.hpp"
#include "cuda/policy/fused.hpp"
#include "cuda/policy/state_arena.hpp"

namespace exphil::cuda {

class CudaSplitStep : public core::SplitStep {
 public:
  // All three outlive the object.
  CudaSplitStep(Context& context, StateArena& arena, FusedSteps& steps)
      : context_(context), arena_(arena), steps_(steps) {}
  ~CudaSplitStep() override;

  void begin(const core::State& from, core::State& to, const float* obs) override;
  bool finish_within(std::chrono::microseconds time, float* out) override;
  void finish(float* out) override;

 private:
  void succeed() noexcept;
  void drop() noexcept;  // waits for the device
  void end() noexcept;

  Context& context_;
  StateArena& arena_;
  FusedSteps& steps_;
  // Of the frame in progress; the ticket is null where there is none.
  CudaState* to_ = nullptr;
  std::optional<NextStates> next_;
  std::unique_ptr<FusedSteps::Ticket> ticket_;
};

}  // namespace exphil::cuda
