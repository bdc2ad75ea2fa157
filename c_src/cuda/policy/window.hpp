// Windows of one agent in one launch (kernels/policy/window_team.cu, window.cu): Policy.window of few frames,
// and sessions with a window, whose frames stay on the device. Used by cuda/policy/policy.cpp; safe from any
// thread, one call at a time runs.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/policy/policy.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/ordered_stream.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/tagged.hpp"
#include "cuda/policy/tuning.hpp"
#include "kernels/policy/arguments.cuh"
#include "kernels/policy/window_layout.cuh"

namespace exphil::cuda {

// A kernel for windows: policy_window_team, or policy_window where `team` is 0.
struct WindowShape : policy::WindowTeamShape {
  KernelSpec kernel(const PolicyDims& dims) const;
  long long shared_bytes(const PolicyDims& dims) const;  // of a block; 0 where the policy does not fit
};
// The shapes worth trying on a device: that for few frames first, that for any number last.
std::vector<WindowShape> window_candidates(const DeviceProperties& device, const PolicyDims& dims,
                                           const PolicyTuning& tuning);

class WindowKernel {
 public:
  // The weights are those of `rows`, which outlives this object.
  WindowKernel(std::shared_ptr<Context> context, const PolicyDims& dims, const PolicyTuning& tuning,
               const RowKernels& rows, OrderedStream& stream);

  // Whether the kernel takes windows of `rows` frames altogether; never where the policy does not fit it.
  bool takes(std::int64_t rows) const { return !launches_.empty() && rows <= kMostRows; }
  std::size_t resident_bytes() const { return held_->load() + buffer_bytes_.load(); }

  // As in core::Policy; throws only when none of the work still runs. A ring is for windows that it takes.
  std::unique_ptr<core::FrameRing> new_ring(std::int64_t slots);
  void run(const float* frames, std::int64_t count, std::int64_t seq, float* out);

  // Frames of all windows of one launch. Beyond it the row kernels are as fast.
  static constexpr std::int64_t kMostRows = 512;

 private:
  class Ring;
  struct Buffers {
    std::int64_t capacity = 0;  // rows
    PinnedBuffer host_in;
    TaggedOutputs outputs;
    DeviceBuffer in, front_hidden, front_lead, last_hidden;
    DeviceBuffer values[policy::kMostWindowBuffers];  // by buffer
  };
  // A kernel as this device launches it.
  struct Launch {
    WindowShape shape;
    CUfunction function = nullptr;
    unsigned blocks = 1, shared_bytes = 0;
    std::int64_t most_rows = 0;  // up to which it is the faster one
  };
  void append_launch(const WindowShape& shape, const PolicyTuning& tuning);
  const Launch& launch_for(std::int64_t rows) const;
  CUresult start(const Launch& kernel, void** parameters) const;
  void reserve(std::int64_t rows);  // under mutex_
  policy::WindowArguments arguments_of(const Launch& kernel, policy::WindowArguments arguments) const;
  void launch(policy::WindowArguments arguments, const float* obs, float* out);
  void answer(const Ring& ring, const core::RingWindows& windows, float* out);

  std::shared_ptr<Context> context_;
  const PolicyDims& dims_;
  const policy::WindowPlan plan_;
  OrderedStream& stream_;
  std::vector<Launch> launches_;       // as window_candidates
  policy::WindowArguments weights_{};  // what is the same in every launch
  DeviceBuffer barrier_;
  const std::shared_ptr<std::atomic<std::size_t>> held_;  // bytes of the rings; may outlive the policy

  const std::int64_t spin_microseconds_;
  const bool inline_frame_;

  std::mutex mutex_;
  unsigned sequence_ = 0;
  Buffers buffers_;
  std::atomic<std::size_t> buffer_bytes_{0};
};

}  // namespace exphil::cuda
