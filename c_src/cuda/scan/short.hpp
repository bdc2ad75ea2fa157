// kernels/scan/short.cu, where a cluster of blocks scans a short sequence in a single pass. For few channels
// on a device with clusters.
//
// The choice of this kernel changes the bits of a result; the width of a block does not.
#pragma once

#include "cuda/scan/kernel.hpp"

namespace exphil::cuda {

extern const ScanKernel kShortScan;

struct ShortTuning : ScanTuning {
  ShortTuning() : ScanTuning{&kShortScan} {}
  int channel_warps = 0;  // warps of a block side by side in channels
  int min_blocks = 0;     // of a multiprocessor: launch bounds the kernel is compiled for
};

}  // namespace exphil::cuda
