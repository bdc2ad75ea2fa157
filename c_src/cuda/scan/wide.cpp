// See wide.hpp.
#include "cuda/scan/wide.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "kernels/scan/arguments.cuh"

namespace exphil::cuda {
namespace {

using core::ScanOperand;
using core::ScanShape;

// Steps of a tile: three tiles of 20 make 32x60x512x16 (12.2 us in f32 on an H200). From 32 states on a tile
// has to be of whole groups of lanes.
constexpr int kSteps = 20, kManyStatesSteps = 16;
constexpr int kFewestSteps = 8;  // of a tile, as long as fewer warps make room
constexpr int kGroups = 4;       // warps of a block
constexpr int kStages = 3;       // tiles that are scanned, activated and on their way
// Warps of a multiprocessor: 168 registers a lane of 65536. They are three blocks, which share its memory.
constexpr int kWarps = 12;

int lanes_of(const ScanShape& p) {
  return static_cast<int>(p.state / 4);
}

bool pairs_aligned(const ScanShape& p) {
  const int pair = 2 * static_cast<int>(core::dtype_size(p.dtype));
  for (const ScanOperand id :
       {ScanOperand::x, ScanOperand::dt, ScanOperand::z, ScanOperand::y, ScanOperand::y_reverse}) {
    if (p.has(id) && p.alignment[id] < pair) return false;
  }
  return true;
}

// Fewer steps to a tile, and fewer warps to a block, until it takes no more than `most` bytes. Neither
// changes a bit.
void make_room(const ScanShape& p, std::size_t most, bool forced_groups, ScanPlan* plan) {
  while (wide_shared_bytes(p, *plan) > most) {
    if (plan->groups > 1 && plan->steps <= kFewestSteps && !forced_groups) {
      plan->groups /= 2;
    } else if (plan->steps > 1) {
      int shorter = 1;  // a power of two, which lanes divide or are divided by
      while (2 * shorter < plan->steps) shorter *= 2;
      plan->steps = shorter;
    } else {
      break;
    }
  }
}

}  // namespace

bool scans_wide(const ScanShape& p) {
  const bool lanes = p.state % 4 == 0 && p.state <= 128 && (p.state & (p.state - 1)) == 0;
  return lanes && scans_sequentially(p) && has_vector_rows(p) && !p.complex && !p.full_matrix &&
         !p.b_layout.constant && !p.c_layout.constant && span_of(p) % 2 == 0 && pairs_aligned(p);
}

ScanPlan plan_wide(const ScanShape& p, const DeviceProperties& device, const ScanTuning& tuning) {
  const std::int64_t warp_channels = 2 * (32 / lanes_of(p));
  ScanPlan plan;
  plan.sequential = true;
  plan.steps = tuning.steps > 0 ? tuning.steps : p.state <= 16 ? kSteps : kManyStatesSteps;
  plan.groups = tuning.groups > 0 ? tuning.groups : kGroups;
  plan.buffers = kStages;
  const bool wished = tuning.groups > 0 || tuning.steps > 0;
  while (tuning.groups == 0 && plan.groups > 1 && plan.groups / 2 * warp_channels >= span_of(p)) {
    plan.groups /= 2;  // warps that would have no channel
  }
  const std::size_t most = static_cast<std::size_t>(device.max_shared_per_block);
  make_room(p, wished ? most : (most + kReservedShared) / (kWarps / kGroups) - kReservedShared,
            tuning.groups > 0, &plan);
  plan.min_blocks = tuning.min_blocks > 0 ? tuning.min_blocks : std::max(1, kWarps / plan.groups);
  cut_channels(p, plan.groups * warp_channels, &plan);
  return plan;
}

std::size_t wide_shared_bytes(const ScanShape& p, const ScanPlan& plan) {
  return static_cast<std::size_t>(scan::wide_bytes(static_cast<int>(p.state), plan.steps, plan.groups,
                                                   plan.buffers, p.dtype != core::Dtype::f32));
}

KernelSpec wide_kernel_spec(const ScanShape& p, const ScanPlan& plan) {
  const std::int64_t block_channels = plan.groups * 2 * (32 / lanes_of(p));
  KernelSpec spec{
      "scan/wide.cu",
      "selective_scan_wide",
      {define("STEPS", plan.steps), define("CHANNEL_WARPS", plan.groups), define("STAGES", plan.buffers),
       define("MIN_BLOCKS", plan.min_blocks), define("PIECE", piece_of(p, plan, block_channels))}};
  add_problem_defines(p, &spec.defines);
  return spec;
}

}  // namespace exphil::cuda
