// What the states of a batch give without its frames, the products that read them (policy_cell_ahead), for
// the slices of SliceLanes: launched before the frames of a call are there, or known from the frame before
// where a group keeps it. Used by cuda/policy/slice_lanes.cpp; one call at a time, with the context current.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "cuda/device/context.hpp"
#include "cuda/policy/group_memory.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/tuning.hpp"

namespace exphil::cuda {

struct Slice;

class StatesAhead {
 public:
  // kernels: with values_ahead().
  StatesAhead(Context& context, const RowKernels& kernels, const PolicyTuning& tuning,
              StreamPriority priority);

  // From now on a batch of so many rows allocates nothing. Throws out_of_memory.
  void reserve(std::int64_t rows);
  // Whether it can be launched by itself for these slices: they are of one batch, row by row.
  bool takes(const std::vector<Slice>& slices) const;
  // Launches it after an event, of a batch that is large enough: the event when it is there, or `after`.
  CUevent begin(const std::vector<Slice>& slices, CUevent after);
  // The same where a group has it: the event after which it may be read. alone: the stream of the only slice.
  CUevent begin_known(const std::vector<Slice>& slices, const CudaGroupMemory& group, CUstream alone,
                      CUevent after);
  // Launches it for a group's next frame, of the states that the slices leave, in this stream, or of several
  // slices in its own after these events. After all of them: beside the last slice's frames it would take
  // longer than it saves.
  void begin_next(const std::vector<Slice>& slices, CudaGroupMemory& group, CUstream alone,
                  const std::vector<CUevent>& after);
  // Of the batch that has begun, that of this slice; null: there is nothing.
  const float* of(const Slice& slice) const;
  void end() { found_ = nullptr; }  // of the batch
  void drop() noexcept;             // waits for what is launched

 private:
  Context& context_;
  const RowKernels& kernels_;
  const PolicyTuning tuning_;
  StreamLease stream_;
  Event done_;
  PinnedBuffer states_;
  DeviceBuffer values_;
  std::int64_t capacity_ = 0;  // rows
  // Of the batch under way, from its first state on.
  const float* found_ = nullptr;
  const policy::StatePlace* first_ = nullptr;
};

}  // namespace exphil::cuda
