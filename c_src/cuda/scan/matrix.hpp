// kernels/scan/matrix.cu, for a full matrix A: a warp solves the system of one channel, step after step. It
// has no tuning.
#pragma once

#include "cuda/scan/kernel.hpp"

namespace exphil::cuda {

extern const ScanKernel kMatrixScan;

}  // namespace exphil::cuda
