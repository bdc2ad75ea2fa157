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
#include "host/policy/state_memory.hpp"
#include "host/simd/aligned.hpp"

namespace exphil::host {

// The bytes of all sessions and snapshots of a policy, which its resident bytes include; may outlive it.
using HeldBytes = std::shared_ptr<std::atomic<std::size_t>>;

// Counts memory that a session or a snapshot holds, as long as it does.
class Held {
 public:
  Held(std::size_t bytes, HeldBytes of) : bytes_(bytes), of_(std::move(of)) {
    of_->fetch_add(bytes_, std::memory_order_relaxed);
  }
  ~Held() { of_->fetch_sub(bytes_, std::memory_order_relaxed); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  std::size_t bytes() const { return bytes_; }

 private:
  const std::size_t bytes_;
  const HeldBytes of_;
};

class HostState final : public core::State {
 public:
  HostState(std::shared_ptr<StateMemory> memory, HeldBytes held)
      : memory_(std::move(memory)),
        held_(static_cast<std::size_t>(memory_->floats()) * sizeof(float), std::move(held)),
        values_(memory_->take()) {}
  ~HostState() override { memory_->give_back(values_); }
  float* data() { return values_; }
  const float* data() const { return values_; }
  std::size_t bytes() const { return held_.bytes(); }

 private:
  const std::shared_ptr<StateMemory> memory_;
  const Held held_;
  float* const values_;
};

// Rows of every vector of ForwardPlan::kept. Every row is there twice, `slots` rows apart, so that the frames
// of a window are contiguous.
class HostRing {
 public:
  HostRing(const ForwardPlan& plan, std::int64_t slots, HeldBytes held)
      : slots_(slots), memory_(floats_of(plan, slots)), held_(memory_.bytes(), std::move(held)) {
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
  AlignedBuffer memory_;
  const Held held_;
  std::vector<float*> arrays_;
};

}  // namespace exphil::host
