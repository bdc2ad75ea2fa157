// kernels/scan/wide.cu, where a warp scans all of time for pairs of channels. For sequential scans of real
// states in fours and an even number of channels per group.
//
// The choice of this kernel may change the bits of a result; the steps of a tile and the warps of a block do
// not.
#pragma once

#include "cuda/scan/kernel.hpp"

namespace exphil::cuda {

extern const ScanKernel kWideScan;

struct WideTuning : ScanTuning {
  WideTuning() : ScanTuning{&kWideScan} {}
  int steps = 0;       // of a tile
  int warps = 0;       // warps of a block
  int min_blocks = 0;  // of a multiprocessor: launch bounds the kernel is compiled for
};

}  // namespace exphil::cuda
