// Sessions with a window of a policy whose windows go through the row kernels. Of a frame, what does not
// depend on other frames (KeptValues) is computed once and kept on the device, so that an answer begins with
// the first layer's recurrence. Used by cuda/policy/policy.cpp; safe from any thread.
//
// Each answer under way has a lane, a stream and memory of its own: those of several calls are computed side
// by side, and wait neither for each other nor for longer work of the policy.
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
#include "cuda/policy/row_lane.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/slices.hpp"
#include "cuda/policy/tuning.hpp"

namespace exphil::cuda {

class RowWindows {
 public:
  // slices answers several windows of a session in one call. All but the context outlive this object.
  RowWindows(std::shared_ptr<Context> context, const PolicyDims& dims, const PolicyTuning& tuning,
             const RowKernels& kernels, SlicePipeline& slices);
  ~RowWindows();

  // Whether rings of so many slots are kept so. Layers that are walked (cell_walk.hpp), a GRU's or an LSTM's,
  // begin in the ring; for others the rows are copied side by side first.
  bool takes(std::int64_t slots) const {
    return tuning_.window_rings != 0 && values_.all() > 0 && slots <= kMostSlots;
  }
  bool are_walked() const { return kernels_.walks_rings(); }
  std::unique_ptr<core::FrameRing> new_ring(std::int64_t slots);
  std::size_t resident_bytes() const { return *held_; }  // of the rings

 private:
  // An answer of more launches is begun in a thread that may wait: each takes that thread 2 to 4 us.
  static constexpr int kMostLaunches = 64;
  // Longer windows have their time in the layers.
  static constexpr std::int64_t kMostSlots = 512;

  class Ring;
  std::unique_ptr<RowLane> make_lane();                                  // under the mutex
  void reserve(RowLane& lane, std::int64_t rows) const;                  // nothing of it is under way
  std::unique_ptr<RowLane> take_lane(std::int64_t rows, bool may_wait);  // for windows of so many rows
  void give(std::unique_ptr<RowLane> lane) noexcept;

  const std::shared_ptr<Context> context_;
  const PolicyDims& dims_;
  const PolicyTuning tuning_;
  const RowKernels& kernels_;
  SlicePipeline& slices_;
  const KeptValues values_;  // of a frame
  const bool may_split_;
  const std::shared_ptr<std::atomic<std::size_t>> held_;  // may outlive the policy

  std::mutex mutex_;
  std::int64_t rows_ = 0;                        // the most slots of a ring
  std::size_t made_ = 0;                         // lanes
  std::vector<std::unique_ptr<RowLane>> lanes_;  // that are free
};

}  // namespace exphil::cuda
