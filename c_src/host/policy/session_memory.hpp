// What sessions and snapshots hold on the CPU: recurrent states, and the rings of sessions with a window.
// Used by host/policy/policy.cpp. Freed from any thread; otherwise used by one call at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/policy/policy.hpp"
#include "core/tensor.hpp"
#include "host/policy/forward.hpp"
#include "host/simd/aligned.hpp"

namespace exphil::host {

// Memory that a session or a snapshot holds: zeros at first, and part of the policy's resident bytes.
class SessionMemory {
 public:
  SessionMemory(std::int64_t floats, std::shared_ptr<std::atomic<std::size_t>> held)
      : floats_(floats), held_(std::move(held)) {
    held_->fetch_add(bytes(), std::memory_order_relaxed);
  }
  ~SessionMemory() { held_->fetch_sub(bytes(), std::memory_order_relaxed); }
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;
  float* data() { return floats_.data(); }
  const float* data() const { return floats_.data(); }
  std::size_t bytes() const { return floats_.bytes(); }

 private:
  AlignedBuffer floats_;
  std::shared_ptr<std::atomic<std::size_t>> held_;  // of all sessions; may outlive the policy
};

class HostState final : public core::State, public SessionMemory {
 public:
  using SessionMemory::SessionMemory;
};

// Rows of every vector of ForwardPlan::kept. Every row is there twice, `slots` rows apart, so that the frames
// of a window are contiguous.
class HostRing {
 public:
  HostRing(const ForwardPlan& plan, std::int64_t slots, std::shared_ptr<std::atomic<std::size_t>> held)
      : slots_(slots), memory_(floats_of(plan, slots), std::move(held)) {
    float* next = memory_.data();
    for (const core::VectorId id : plan.kept) {
      arrays_.push_back(next);
      next += padded(plan.step(id)) * 2 * slots;
    }
  }

  RingRows rows(std::int64_t slot) const { return {arrays_.data(), slot}; }
  // Calls put(fresh) for the fresh frames of `windows`, at most kPassRows at a time.
  template <class Put>
  void for_fresh(const core::RingWindows& windows, std::int64_t d_input, const Put& put) {
    std::int64_t at = windows.first + windows.seq + windows.count - 1 - windows.fresh;
    for (std::int64_t done = 0; done < windows.fresh;) {
      FreshFrames fresh;
      const std::int64_t slot = (at + done) % slots_;
      fresh.count = std::min({kPassRows, windows.fresh - done, slots_ - slot});
      fresh.obs = windows.obs + done * d_input;
      fresh.to = rows(slot);
      fresh.twin = slots_;
      put(fresh);
      done += fresh.count;
    }
  }

 private:
  static std::int64_t floats_of(const ForwardPlan& plan, std::int64_t slots) {
    std::int64_t row = 0;
    for (const core::VectorId id : plan.kept) row += padded(plan.step(id));
    return core::checked_multiply(core::checked_multiply(row, 2, ":window"), slots, ":window");
  }

  const std::int64_t slots_;
  SessionMemory memory_;
  std::vector<float*> arrays_;
};

}  // namespace exphil::host
