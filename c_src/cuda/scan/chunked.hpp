// kernels/scan/chunked.cu, which scans in parallel over time: time is split into chunks, and a warp combines
// the chunks of a tile. The warps of a block take tiles in turn, and so do the blocks of a cluster. For every
// diagonal scan of more than a few steps.
//
// The steps of a chunk and the chunks of a tile may change the bits of a result; other parameters do not.
#pragma once

#include "cuda/scan/kernel.hpp"

namespace exphil::cuda {

extern const ScanKernel kChunkedScan;

struct ChunkedTuning : ScanTuning {
  ChunkedTuning() : ScanTuning{&kChunkedScan} {}
  int steps = 0;            // of a chunk: changes bits
  int chunks = 0;           // of a tile: changes bits
  int states_per_pass = 0;  // states that a lane scans at a time
  int channel_warps = 0;    // warps of a block side by side in channels
  int time_warps = 0;       // and in time
  int cluster_blocks = 0;   // blocks of a cluster that share time
  int min_blocks = 0;       // of a multiprocessor: launch bounds the kernel is compiled for
};

}  // namespace exphil::cuda
