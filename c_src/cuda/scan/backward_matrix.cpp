// The plan of kernels/scan/backward_matrix.cu.
#include "cuda/scan/backward.hpp"

namespace exphil::cuda {
namespace {

using core::ScanShape;

constexpr int kSegment = 32;  // steps between checkpoints
constexpr int kChannels = 4;  // of a block: a warp takes them one after another

bool takes(const ScanShape& p, const DeviceProperties&) {
  return p.full_matrix;
}

BackwardPlan plan(const ScanShape& p, const DeviceProperties&, const BackwardTuning&) {
  BackwardPlan plan;
  plan.cut = cut_channels(p, kChannels);
  plan.segments = (p.seq + kSegment - 1) / kSegment;
  plan.sums_in_checkpoints = false;
  KernelSpec spec{"scan/backward_matrix.cu",
                  "selective_scan_backward_matrix",
                  {define("SEGMENT", kSegment), define("CHANNELS", kChannels),
                   define("HAS_STATES", p.has(core::ScanOperand::given_states)),
                   define("B_CONSTANT", p.b_layout.constant), define("C_CONSTANT", p.c_layout.constant)}};
  add_scan_defines(p, &spec.defines);
  plan.stages.push_back({std::move(spec),
                         {gradient_blocks(p.batch * plan.cut.blocks()), 1, 1},
                         {32, 1, 1},
                         (kSegment + 1) * 32 * sizeof(float)});
  return plan;
}

}  // namespace

const BackwardKernel kMatrixBackward = {"matrix", takes, plan};

}  // namespace exphil::cuda
