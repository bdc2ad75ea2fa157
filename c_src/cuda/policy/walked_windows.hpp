// Sessions with a window of a policy whose layers are walked (cell_walk.hpp): a GRU or an LSTM. Of a frame,
// what the first layer's cell reads of it is computed once and kept on the device, so that an answer is the
// walk of all frames and the output of the last one. Used by cuda/policy/policy.cpp; safe from any thread.
//
// Each answer under way has a lane, a stream and memory of its own: those of several sessions are computed
// side by side, and wait neither for each other nor for longer work of the policy.
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
#include "cuda/policy/tuning.hpp"

namespace exphil::cuda {

class WalkedWindows {
 public:
  // policy answers several windows of a session in one call. All but the context outlive this object.
  WalkedWindows(std::shared_ptr<Context> context, const PolicyDims& dims, const PolicyTuning& tuning,
                const RowKernels& kernels, core::Policy& policy);
  ~WalkedWindows();

  // Whether rings of so many slots are kept so.
  bool takes(std::int64_t slots) const { return row_values_ > 0 && slots <= kMostSlots; }
  std::unique_ptr<core::FrameRing> new_ring(std::int64_t slots);
  std::size_t resident_bytes() const { return *held_; }  // of the rings
  // The same as core::Policy::answer_windows() of as many windows as there are, all of rings from here:
  // nothing is done, and the answer is false, where one is not.
  bool answer(core::AgentWindow* windows, std::int64_t count, float* out);

 private:
  // Longer windows have their time in the walk.
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
  core::Policy& policy_;
  const std::int64_t row_values_;                         // kept of a frame
  const std::shared_ptr<std::atomic<std::size_t>> held_;  // may outlive the policy

  std::mutex mutex_;
  std::int64_t rows_ = 0;                        // the most slots of a ring
  std::size_t made_ = 0;                         // lanes
  std::vector<std::unique_ptr<RowLane>> lanes_;  // that are free
};

}  // namespace exphil::cuda
