// A policy's frame in two parts: core::SplitStep over policy_step. Made by cuda/policy/policy.cpp, one for
// each session that takes steps and for each core::ScratchStep. One thread at a time.
//
// With latency: :armed it also launches the frame after the current one ahead of its observation, while it
// waits for the current one's outputs. It reads the slot that the current frame writes. Every change of a
// state is enqueued on the policy's stream or waits for it, and both cancel that launch (OrderedStream), so a
// launch that is not cancelled reads what the state has now. Where it cannot be used, the frame is launched
// as always, with the same bits.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "core/policy/policy.hpp"
#include "cuda/policy/fused.hpp"
#include "cuda/policy/state_arena.hpp"

namespace exphil::cuda {

class CudaSplitStep : public core::SplitStep {
 public:
  // All three outlive the object. armed: of Policy::armed_step(); throws as FusedSteps::prepare_armed() then.
  CudaSplitStep(Context& context, StateArena& arena, FusedSteps& steps,
                std::optional<core::Policy::Frames> armed = std::nullopt);
  ~CudaSplitStep() override;

  void begin(const core::State& from, core::State& to, const float* obs) override;
  bool finish_within(std::chrono::microseconds time, float* out) override;
  void finish(float* out) override;
  void arm(const core::State& from) noexcept override;
  void disarm() noexcept override { drop_ahead(); }

 private:
  using Clock = std::chrono::steady_clock;

  // A launch that waits for its observation; the ticket is null where there is none.
  struct Ahead {
    policy::StatePlace place{};
    std::unique_ptr<FusedSteps::Ticket> ticket;
  };

  bool ring(const CudaState& source, const float* obs);
  void launch(const CudaState& source, const float* obs);
  bool launch_again(bool may_wait);
  void launch_ahead(const float* from) noexcept;
  void drop_ahead() noexcept;
  bool expects_soon() noexcept;
  void succeed() noexcept;
  void drop() noexcept;  // waits for the device
  void end() noexcept;

  Context& context_;
  StateArena& arena_;
  FusedSteps& steps_;
  const bool armed_, chains_;  // chains: a frame's launch may be followed by that of the next one
  // Of the frame in progress; the ticket is null where there is none.
  core::State* to_ = nullptr;
  std::optional<NextStates> next_;
  std::unique_ptr<FusedSteps::Ticket> ticket_;
  bool rung_ = false;       // it was launched ahead, and may end without its step
  std::vector<float> obs_;  // of a frame that was rung

  Ahead ahead_;  // of the frame after it
  Clock::time_point last_frame_{};
  int wasted_ = 0, rest_ = 0;  // launches ahead in a row that were not used; frames until the next one
};

}  // namespace exphil::cuda
