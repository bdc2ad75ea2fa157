// What a session with a window keeps of its last frames, by what answers its windows. Made by
// cuda/policy/policy.cpp; one call at a time for each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/policy/policy.hpp"
#include "core/tensor.hpp"
#include "kernels/policy/kept_arguments.cuh"

namespace exphil::cuda {

// More fresh frames of a window than this are copied to the device before products read them.
inline constexpr std::int64_t kMostDirectFrames = 4;

// A ring of this policy's.
class CudaRing : public core::FrameRing {
 public:
  // Where the rows of RowKernels::kept_values() are on the device; null: they are not kept.
  virtual const policy::KeptRing* kept() const { return nullptr; }
};

// Frames as they came, in host memory: those of windows that are so long that their time is not in the
// copies. Every frame is there twice, `slots` apart, so that the frames of a window are contiguous.
class ObservationRing final : public CudaRing {
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

 private:
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

  core::Policy& policy_;
  const std::int64_t d_input_, slots_;
  std::vector<float> frames_;
};

}  // namespace exphil::cuda
