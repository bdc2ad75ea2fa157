#include "cuda/scan/wide.hpp"

#include <algorithm>

#include "cuda/scan/occupancy.hpp"
#include "kernels/scan/arguments.cuh"

namespace exphil::cuda {
namespace {

using core::ScanOperand;
using core::ScanShape;

// Steps of a tile: three tiles of 20 cover 32x60x512x16 (12.2 us in f32 on an H200). From 32 states on, a
// tile must consist of full groups of lanes.
constexpr int kSteps = 20, kManyStatesSteps = 16;
constexpr int kFewestSteps = 8;  // of a tile, while fewer warps save enough memory
constexpr int kBlockWarps = 4;   // warps of a block
constexpr int kStages = 3;       // tiles being scanned, activated and copied
// Warps of a multiprocessor: 168 registers a lane of 65536. They form three blocks, which share its memory.
constexpr int kMultiprocessorWarps = 12;

struct Cut {
  int steps = 0, warps = 0;
};

// Channels of a warp.
std::int64_t warp_channels(const ScanShape& p) {
  const std::int64_t lanes = p.state / 4;
  return 2 * (32 / lanes);
}

bool pairs_aligned(const ScanShape& p) {
  const int pair = 2 * static_cast<int>(core::dtype_size(p.dtype));
  for (const ScanOperand id :
       {ScanOperand::x, ScanOperand::dt, ScanOperand::z, ScanOperand::y, ScanOperand::y_reverse}) {
    if (p.has(id) && p.alignment[id] < pair) return false;
  }
  return true;
}

std::size_t shared_bytes(const ScanShape& p, const Cut& cut) {
  return static_cast<std::size_t>(scan::wide_bytes(static_cast<int>(p.state), cut.steps, cut.warps, kStages,
                                                   p.dtype != core::Dtype::f32));
}

// Reduces the steps of a tile, and the warps of a block, until the block takes at most `most` bytes. Neither
// changes any bit.
void make_room(const ScanShape& p, std::size_t most, bool forced_warps, Cut* cut) {
  while (shared_bytes(p, *cut) > most) {
    if (cut->warps > 1 && cut->steps <= kFewestSteps && !forced_warps) {
      cut->warps /= 2;
    } else if (cut->steps > 1) {
      int shorter = 1;  // a power of two, which lanes divide or are divided by
      while (2 * shorter < cut->steps) shorter *= 2;
      cut->steps = shorter;
    } else {
      break;
    }
  }
}

Cut cut_for(const ScanShape& p, const DeviceProperties& device, const WideTuning& tuning) {
  Cut cut;
  cut.steps = tuning.steps > 0 ? tuning.steps : p.state <= 16 ? kSteps : kManyStatesSteps;
  cut.warps = tuning.warps > 0 ? tuning.warps : kBlockWarps;
  while (tuning.warps == 0 && cut.warps > 1 && cut.warps / 2 * warp_channels(p) >= span_of(p)) {
    cut.warps /= 2;  // drops warps without a channel
  }
  const bool forced = tuning.warps > 0 || tuning.steps > 0;
  const std::size_t most = forced ? static_cast<std::size_t>(device.max_shared_per_block)
                                  : shared_for_blocks(device, kMultiprocessorWarps / kBlockWarps);
  make_room(p, most, tuning.warps > 0, &cut);
  return cut;
}

bool takes(const ScanShape& p, const DeviceProperties&) {
  const bool lanes = p.state % 4 == 0 && p.state <= 128 && (p.state & (p.state - 1)) == 0;
  return lanes && scans_sequentially(p) && has_vector_rows(p) && !p.complex && !p.full_matrix &&
         !p.b_layout.constant && !p.c_layout.constant && span_of(p) % 2 == 0 && pairs_aligned(p);
}

LaunchPlan plan(const ScanShape& p, const DeviceProperties& device, const ScanTuning* forced) {
  const auto tuning = tuning_or_default<WideTuning>(forced);
  const Cut cut = cut_for(p, device, tuning);
  const int min_blocks =
      tuning.min_blocks > 0 ? tuning.min_blocks : std::max(1, kMultiprocessorWarps / cut.warps);
  const std::int64_t block_channels = cut.warps * warp_channels(p);
  LaunchPlan launch;
  launch.spec = {"scan/wide.cu",
                 "selective_scan_wide",
                 {define("STEPS", cut.steps), define("CHANNEL_WARPS", cut.warps), define("STAGES", kStages),
                  define("MIN_BLOCKS", min_blocks), define("PIECE", copy_width(p, block_channels))}};
  add_scan_defines(p, &launch.spec.defines);
  launch.cut = cut_channels(p, block_channels);
  launch.directions = directions_of(p);
  launch.block = {32, static_cast<unsigned>(cut.warps), 1};
  launch.shared_bytes = shared_bytes(p, cut);
  return launch;
}

}  // namespace

const ScanKernel kWideScan = {"wide", takes, plan};

}  // namespace exphil::cuda
