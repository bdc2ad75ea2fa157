#include "cuda/scan/matrix.hpp"

namespace exphil::cuda {
namespace {

using core::ScanShape;

constexpr int kWarps = 4;  // of a block, each with one channel

bool takes(const ScanShape& p, const DeviceProperties&) {
  return p.full_matrix;
}

LaunchPlan plan(const ScanShape& p, const DeviceProperties&, const ScanTuning*) {
  LaunchPlan launch;
  launch.spec = {"scan/matrix.cu",
                 "selective_scan_matrix",
                 {define("B_CONSTANT", p.b_layout.constant), define("C_CONSTANT", p.c_layout.constant)}};
  add_scan_defines(p, &launch.spec.defines);
  // Blocks may cross groups of b and c: each warp computes its own group.
  launch.cut = {p.dim, 1, (p.dim + kWarps - 1) / kWarps};
  launch.directions = directions_of(p);
  launch.block = {32, kWarps, 1};
  return launch;
}

}  // namespace

const ScanKernel kMatrixScan = {"matrix", takes, plan};

}  // namespace exphil::cuda
