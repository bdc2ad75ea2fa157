// kernels/scan/short.cu, where a cluster of blocks takes a whole short sequence at once. For few channels on
// a device with clusters.
//
// Whether the kernel is taken changes the bits of a result; the width of a block cannot change them.
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
