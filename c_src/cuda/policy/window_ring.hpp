// The frames of a session with a window whose policy does not fit the kernel for windows: as they came, in
// host memory. Made by cuda/policy/policy.cpp, and a part of the rings of walked_windows.hpp; one call at a
// time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/policy/policy.hpp"
#include "core/tensor.hpp"

namespace exphil::cuda {

// More fresh frames of a window than this are copied to the device before products read them.
inline constexpr std::int64_t kMostDirectFrames = 4;

// Every frame is there twice, `slots` apart, so that the frames of a window are contiguous.
class ObservationRing : public core::FrameRing {
 public:
  ObservationRing(core::Policy& policy, std::int64_t slots)
      : policy_(policy),
        d_input_(policy.config().d_input),
        slots_(slots),
        frames_(static_cast<std::size_t>(
            core::checked_multiply(core::checked_multiply(d_input_, 2, ":window"), slots, ":window"))) {}

  void answer(const core::RingWindows& windows, float* out) override {
    put(windows);
    if (windows.count == 1) return policy_.window(frame(windows.first), 1, windows.seq, out);
    std::vector<float> side_by_side;  // {count, seq, d_input}
    side_by_side.reserve(static_cast<std::size_t>(windows.count * windows.seq * d_input_));
    for (std::int64_t i = windows.first; i < windows.first + windows.count; ++i) {
      side_by_side.insert(side_by_side.end(), frame(i), frame(i + windows.seq));
    }
    policy_.window(side_by_side.data(), windows.count, windows.seq, out);
  }

 protected:
  std::int64_t slots() const { return slots_; }
  void put(const core::RingWindows& windows) {
    const std::int64_t first = windows.first + windows.seq + windows.count - 1 - windows.fresh;
    for (std::int64_t i = 0; i < windows.fresh; ++i) {
      const float* const obs = windows.obs + i * d_input_;
      float* const to = frames_.data() + (first + i) % slots_ * d_input_;
      std::copy_n(obs, d_input_, to);
      std::copy_n(obs, d_input_, to + slots_ * d_input_);
    }
  }
  const float* frame(std::int64_t slot) const { return frames_.data() + slot * d_input_; }

 private:
  core::Policy& policy_;
  const std::int64_t d_input_, slots_;
  std::vector<float> frames_;
};

}  // namespace exphil::cuda
