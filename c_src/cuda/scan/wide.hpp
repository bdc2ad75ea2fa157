// kernels/scan/wide.cu, where a warp scans all of time for pairs of channels. For sequential scans of real
// states in fours and an even number of channels to a group.
//
// Whether the kernel is taken may change the bits of a result; the steps of a tile and the warps of a block
// cannot change them.
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
