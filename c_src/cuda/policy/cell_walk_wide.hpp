// The launch that walks all frames of many sequences of a GRU's or an LSTM's layer on tensor cores, in tf32x3
// (kernels/policy/cell_walk_wide.cu). Made when a policy is loaded, immutable afterwards; used by
// cuda/policy/rows.cpp.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <optional>

#include "cuda/device/context.hpp"
#include "cuda/policy/dims.hpp"
#include "kernels/policy/arguments.cuh"
#include "kernels/policy/wide_layout.cuh"

namespace exphil::cuda {

// The kernel of cell `cell` of the network, which policy::wide_walk() has a shape for.
KernelSpec cell_walk_wide_kernel(const PolicyDims& dims, int cell);

class CellWalkWide {
 public:
  // Nothing where the network or the device has none.
  static std::optional<CellWalkWide> find(Context& context, const PolicyDims& dims, int cell);

  int product() const { return product_; }  // that the launch computes as well
  // Sequences that `launches` of them take at the same time, each.
  int most_side_by_side(int launches) const { return std::max(1, clusters_ / launches) * shape_.sequences(); }
  void enqueue(Context& context, CUstream stream, const policy::CellWalkArguments& arguments) const;

 private:
  CUfunction function_ = nullptr;
  policy::WideWalk shape_;
  int clusters_ = 0, product_ = policy::kNoPhase;
};

}  // namespace exphil::cuda
