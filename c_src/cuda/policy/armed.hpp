// The host's side of policy_step_armed: its kernel, and the memory by which host and launch find each other.
// One for each policy, made when its first session asks for it. Used by cuda/policy/fused.cpp.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/device/context.hpp"
#include "cuda/device/doorbell.hpp"
#include "cuda/policy/team.hpp"

namespace exphil::cuda {

class ArmedLaunches {
 public:
  // Compiles the kernel of `one`, which outlives the object, as does the doorbell. Throws unsupported or
  // out_of_memory.
  ArmedLaunches(Context& context, TeamRunner& one, Doorbell& doorbell, const PolicyDims& dims,
                std::int64_t wait_microseconds);

  // Launches one that ends at once, so that the driver loads the kernel now. Under the stream's lock.
  void warm_up(CUstream stream, unsigned number);
  // Launches the frame with arguments.sequence, which waits for its observation at most so long. False where
  // nothing may wait now. Under the stream's lock.
  bool launch(CUstream stream, const policy::StepArguments& arguments);
  // Gives launch `number` its observation, {d_input}. False where it was cancelled, or has ended. It may
  // still end without the step after true was returned: see ended().
  bool ring(unsigned number, const float* obs);
  // Whether launch `number` or a later one has ended without its step: the outputs of `number` are complete
  // then, or never come. False for one that ended with its step, until a later one ends without.
  bool ended(unsigned number) const {
    return static_cast<int>(last_ended() - number) >= 0;  // the launches of a stream end in their order
  }
  // Whether launch `number` still waits, or is to wait.
  bool waits(unsigned number) const { return doorbell_.armed(number) && !ended(number); }
  // Cancels launch `number` where it still waits.
  void cancel(unsigned number) noexcept {
    if (doorbell_.armed(number)) doorbell_.cancel();
  }

 private:
  // In words of 8 bytes: each in a cache line of its own, because one side reads it over and over.
  static constexpr std::size_t kCancelled = 0, kEnded = 16, kObs = 32;
  void launch(CUstream stream, const policy::StepArguments& arguments, unsigned long long wait_nanoseconds);
  unsigned last_ended() const {  // of those that ended without their step
    return static_cast<unsigned>(__atomic_load_n(words() + kEnded, __ATOMIC_ACQUIRE));
  }
  std::uint64_t* words() const { return words_.as<std::uint64_t>(); }

  TeamRunner& one_;
  Doorbell& doorbell_;
  const std::size_t d_input_;
  const unsigned long long wait_nanoseconds_;
  PinnedBuffer words_;
};

}  // namespace exphil::cuda
