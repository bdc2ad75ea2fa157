// A step of a policy whose answer nobody wants: it wakes the processor and brings weights and code into the
// caches shortly before a frame. It reads a state of zeros and writes another of its own, so that its values
// do not drift and no session changes. Used by core/policy/pace.cpp, and by nif/clock.cpp on the thread of
// the caller.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "core/policy/policy.hpp"

namespace exphil::core {

class ScratchStep {
 public:
  // A step is not begun where less time than this is left: it might still run when the frame comes.
  static constexpr std::chrono::microseconds kLeastTime{150};

  // Two states. Throws out_of_memory.
  explicit ScratchStep(std::shared_ptr<Policy> policy);

  // Both leave failures to the next real step, which has the same ones.
  // Waits for the answer. One thread at a time.
  void run() noexcept;
  // For a thread that must not be held up: returns by `end`, and after kPatience (policy.hpp) at the latest.
  // Does nothing where the policy computes in the calling thread, where less than kLeastTime is left, where
  // another thread is in this call, where the step cannot be sent to the device at once, or where the last
  // one has not ended yet. Returns whether a step has come and gone. From any thread.
  bool run_until(std::chrono::steady_clock::time_point end) noexcept;

 private:
  const std::shared_ptr<Policy> policy_;  // declared first, so that it outlives its states
  const std::unique_ptr<State> zeros_, scratch_;
  std::vector<float> obs_, out_;
  const std::unique_ptr<SplitStep> split_;  // destroyed before the states that it uses
  std::mutex mutex_;                        // of run_until
  bool in_progress_ = false;                // a step of run_until was late
};

}  // namespace exphil::core
