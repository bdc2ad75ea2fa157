// kernels/scan/general.cu, where a warp scans all of time. For every diagonal scan, whatever its layout.
//
// The lanes and warps of a cut do not change the bits of a result.
#pragma once

#include "cuda/scan/kernel.hpp"

namespace exphil::cuda {

extern const ScanKernel kGeneralScan;

struct GeneralTuning : ScanTuning {
  GeneralTuning() : ScanTuning{&kGeneralScan} {}
  int steps = 0;       // of a tile
  int warps = 0;       // warps of a block
  int min_blocks = 0;  // of a multiprocessor: launch bounds the kernel is compiled for
};

}  // namespace exphil::cuda
