// A stream of the row kernels, with memory of its own: what is under way on one waits for no other. Used by
// cuda/policy/row_windows.cpp and prefill_ahead.cpp; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/context.hpp"
#include "cuda/policy/frame_rows.hpp"
#include "cuda/policy/rows.hpp"

namespace exphil::cuda {

// Lanes that are made for sessions in advance: the walks of more do not fit a device of 132 multiprocessors
// at a time.
inline constexpr std::size_t kLanesInAdvance = 4;

struct RowLane {
  RowLane(Context& context, StreamPriority priority) : stream(context, priority), done(context) {}

  // From now on a sequence of so many rows allocates nothing. Nothing of the lane is under way. Throws
  // out_of_memory.
  void reserve(Context& context, const PolicyDims& dims, const RowKernels& kernels, std::int64_t rows) {
    if (rows <= buffers.capacity) return;
    buffers.reserve(context, dims, capacity_for(rows));
    kernels.reserve_sequences(stream.handle(), buffers, 1);
  }

  RowBuffers buffers;
  StreamLease stream;
  Event done;  // recorded after its work
};

}  // namespace exphil::cuda
