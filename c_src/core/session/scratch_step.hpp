// A step of a policy whose answer nobody wants: it wakes the processor and brings weights and code into the
// caches shortly before a frame. It reads a state of zeros and writes another of its own, so that its values
// do not drift and no session changes. Used by core/session/pace.cpp, and by nif/clock.cpp on the thread of
// the caller.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "core/policy/policy.hpp"
#include "core/work/polling.hpp"

namespace exphil::core {

class ScratchStep {
 public:
  // run_until makes a step at once, and more of them in the last part of its time.
  static constexpr std::chrono::microseconds kLast{200};

  // Two states. Throws out_of_memory.
  explicit ScratchStep(std::shared_ptr<Policy> policy);

  // Whether a step waits for a device, and does not compute in the thread that runs it.
  bool on_device() const { return split_ != nullptr; }

  // What a step takes, which run_until needs to know. Waits for two of them.
  void measure() noexcept;

  // Both leave failures to the next real step, which has the same ones.
  // Waits for the answer. One thread at a time.
  void run() noexcept;
  // For a thread that must not be held up: polls until `end` as long as its place allows it, and makes those
  // steps that end before it by what earlier ones took. Each is also bounded by kPatience (policy.hpp), and
  // none is begun where it cannot be sent to the device at once, or where the last one has not ended yet.
  // Does nothing before measure(), where the policy computes in the calling thread, or where another thread
  // is in this call. Returns whether a step has come and gone. From any thread.
  bool run_until(std::chrono::steady_clock::time_point end, PollingPlace& place) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  bool run_within(Clock::duration left);  // whether a step has come and gone in this time

  const std::shared_ptr<Policy> policy_;  // declared first, so that it outlives its states
  const std::unique_ptr<State> zeros_, scratch_;
  std::vector<float> obs_, out_;
  const std::unique_ptr<SplitStep> split_;  // destroyed before the states that it uses
  std::mutex mutex_;                        // of run_until
  bool in_progress_ = false;                // a step of run_until was late
  Clock::duration first_{0}, again_{0};     // what a step takes after a pause, and after another; 0: unknown
};

}  // namespace exphil::core
