// A batch of agents whose frame is one launch (frame_launch.hpp). The calling thread finds the states and
// launches it while the library's threads copy the frames into page-locked memory: the device computes a
// chunk of agents as soon as their frames are there. Used by cuda/policy/slices.cpp; one call at a time, with
// the context current.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "cuda/device/context.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/slice_lanes.hpp"
#include "cuda/policy/tuning.hpp"

namespace exphil::cuda {

class FrameLane {
 public:
  // kernels: of a policy with RowKernels::frame().
  FrameLane(Context& context, const PolicyDims& dims, const RowKernels& kernels, const PolicyTuning& tuning,
            StreamPriority priority);

  // From now on so many agents allocate nothing. Throws out_of_memory.
  void reserve(std::int64_t rows);
  // As SliceLanes::run(), of one slice with hooks.find.
  bool run(Slice& batch, const StartEvent& start, const SliceHooks& hooks);

 private:
  // known: what it needs of the states' products; null: it is to be computed.
  void launch(const Slice& batch, CUevent after, const CudaGroupMemory* known);
  // Launches, for the group's next frame, what needs the states alone.
  void begin_next(const Slice& batch, CudaGroupMemory& group);
  template <class Launch>
  void copy_frames(const Slice& batch, Launch launch);
  void wait(std::int64_t rows);
  void copy_answers(const Slice& batch) const;
  void let_begin(std::int64_t chunk);  // by its number among those of all tiles
  void let_all_begin(std::int64_t rows);

  Context& context_;
  const PolicyDims& dims_;
  const RowKernels& kernels_;
  const PolicyTuning tuning_;
  StreamLease stream_;
  Event done_;
  std::int64_t capacity_ = 0;           // agents
  PinnedBuffer frames_, states_, out_;  // in the order of the batch
  PinnedBuffer arrived_;                // AwaitedFrames::missed, and from the next line on its arrived
  PinnedBuffer finished_;
  DeviceBuffer h_;
  RowBuffers rest_;                 // where the launch ends with hidden
  std::uint64_t number_ = 0;        // of the launch
  std::atomic<bool> finite_{true};  // the frames that were copied
};

}  // namespace exphil::cuda
