// The launch that walks all frames of sequences of a GRU's or an LSTM's layer (kernels/policy/cell_walk.cu).
// Made when a policy is loaded, immutable afterwards; used by cuda/policy/rows.cpp.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "cuda/device/context.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/tuning.hpp"
#include "kernels/common/cell_walk_layout.cuh"
#include "kernels/policy/arguments.cuh"

namespace exphil::cuda {

// The kernel of cell `cell` of the network for clusters of that shape.
KernelSpec cell_walk_kernel(const PolicyDims& dims, int cell, const walk::Shape& shape, bool counts,
                            bool pipelined = false);
// The shapes worth trying on a device, the fastest first; none for a cell that does not recall its state.
std::vector<walk::Shape> cell_walk_candidates(const DeviceProperties& device, const PolicyDims& dims,
                                              const PolicyTuning& tuning, int cell);

class CellWalk {
 public:
  // Nothing where no shape fits the device: the cell is then advanced frame by frame.
  static std::optional<CellWalk> find(Context& context, const PolicyDims& dims, const PolicyTuning& tuning,
                                      int cell, bool pipelined = false);

  // The index of the product that the launch computes as well.
  int product() const { return product_; }
  // As few sequences in each of so many clusters as possible: the time of a frame grows with them. Fewer
  // clusters than fit the device: 1 / share of them.
  struct Split {
    int clusters, together;  // sequences of a cluster at a time
  };
  Split split(int sequences, int share = 1) const;
  int most_at_once() const { return clusters_ * shape_.sequences(); }  // sequences
  // arguments: without `together`.
  void enqueue(Context& context, CUstream stream, policy::CellWalkArguments arguments,
               const Split& split) const;

 private:
  CUfunction function_ = nullptr;
  walk::Shape shape_;
  int clusters_ = 0, product_ = 0;
  unsigned shared_bytes_ = 0;
};

}  // namespace exphil::cuda
