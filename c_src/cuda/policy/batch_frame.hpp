// A frame of a batch of agents through a whole policy in one launch (kernels/policy/batch_frame.cu), where
// the network and the device have it: layers with a cell that recalls its state, and clusters of blocks. It
// may be launched before its frames are there (slice_lanes.cpp). Used by cuda/policy/rows.cpp; immutable.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "cuda/device/context.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/tuning.hpp"
#include "kernels/policy/arguments.cuh"
#include "kernels/policy/batch_frame_layout.cuh"

namespace exphil::cuda {

KernelSpec batch_frame_kernel(const PolicyDims& dims, int cell, const policy::FrameShape& shape);
// That of the cell, where a device of this kind may have it: with the largest tiles that fit.
std::optional<policy::FrameShape> batch_frame_shape(const DeviceProperties& device, const PolicyDims& dims,
                                                    const PolicyTuning& tuning, int cell);

class BatchFrame {
 public:
  static std::optional<BatchFrame> find(Context& context, const PolicyDims& dims, const PolicyTuning& tuning,
                                        int cell);

  // Whether it takes a batch of so many agents, and is faster than launches layer by layer. known: their U h
  // + b is there.
  bool takes(std::int64_t rows, bool known) const;
  // How a batch that it takes is cut: each cluster has a tile, as evenly as may be. The last tile, and the
  // last chunk of a tile, may have fewer rows.
  struct Split {
    std::int64_t tiles, tile_rows, chunks, chunk_rows;  // chunks: of a tile
  };
  Split split(std::int64_t rows) const;
  std::int64_t team() const { return shape_.team; }        // blocks of a tile
  bool has_outputs() const { return shape_.outputs > 0; }  // otherwise the launch ends with hidden
  // arguments: all but the split.
  void enqueue(Context& context, CUstream stream, policy::FrameArguments arguments) const;

 private:
  policy::FrameShape shape_;
  CUfunction function_ = nullptr;
  std::int64_t clusters_ = 0;  // that the device has room for
};

}  // namespace exphil::cuda
