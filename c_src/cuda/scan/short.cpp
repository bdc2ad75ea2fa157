#include "cuda/scan/short.hpp"

#include <algorithm>
#include <cmath>

#include "cuda/scan/occupancy.hpp"
#include "kernels/scan/arguments.cuh"

namespace exphil::cuda {
namespace {

using core::ScanShape;

constexpr std::int64_t kSteps = std::int64_t{scan::kShortBlocks} * scan::kShortChunks * scan::kShortSteps;
// With more channels the tiles of the chunked kernel fill a device, and it is faster.
constexpr std::int64_t kChannels = 512;
constexpr std::int64_t kStates = 64;  // eight warps share the states of a channel

constexpr int kMostWarps = 12;         // of a multiprocessor: 168 registers a lane
constexpr int kFewestProcessors = 64;  // a smaller device may be unable to place a cluster of eight
constexpr int kWarpChannels = 32 / scan::kShortChunks;

struct Cut {
  int channel_warps = 1;  // warps of a block side by side in channels
  int min_blocks = 1;     // of a multiprocessor
  ChannelCut channels;
};

// Warps that share the states of a channel.
int parts_of(const ScanShape& p) {
  return static_cast<int>(p.state / scan::kShortStates);
}

std::size_t shared_bytes(const ScanShape& p, int channel_warps) {
  return static_cast<std::size_t>(scan::short_bytes(static_cast<int>(p.state), channel_warps,
                                                    static_cast<int>(core::dtype_size(p.dtype)),
                                                    p.has(core::ScanOperand::z)));
}

// A lane has no registers for its inputs and computes them twice. Where one costs more than v B, the chunked
// kernel is faster (1x1024x256x16 on an H200: foh 15.1 instead of 24.1 us, highorder 13.8 instead of 18.7).
bool cheap_input(formulas::Discretization rule) {
  return rule == formulas::Discretization::zoh || rule == formulas::Discretization::bilinear;
}

// Blocks of `channel_warps` warps side by side that fit on a multiprocessor.
int fitting_blocks(const ScanShape& p, const DeviceProperties& device, int channel_warps) {
  const std::size_t bytes = shared_bytes(p, channel_warps);
  if (bytes > static_cast<std::size_t>(device.max_shared_per_block)) return 0;
  return std::max(1, std::min(kMostWarps / (channel_warps * parts_of(p)), blocks_by_shared(device, bytes)));
}

// Blocks that fit on a device together with `blocks` per multiprocessor. A cluster must fit in one GPC, which
// leaves some multiprocessors unused: clusters of eight use 120 of the 132 of an H200.
double blocks_at_once(const DeviceProperties& device, int blocks) {
  const double clusters = std::floor(0.9 * device.multiprocessors * blocks / scan::kShortBlocks);
  return scan::kShortBlocks * std::max(1.0, clusters);
}

// Estimated cycles, fitted to bench/results/gpu_scan.md.
double estimate(const ScanShape& p, const DeviceProperties& device, const Cut& cut) {
  const double blocks = static_cast<double>(p.batch * cut.channels.blocks() * directions_of(p)) *
                        static_cast<double>(scan::kShortBlocks);
  const Occupancy o = occupancy(device, blocks, cut.min_blocks, blocks_at_once(device, cut.min_blocks),
                                cut.channel_warps * parts_of(p));
  const double tile = scan::kShortChunks * scan::kShortSteps;
  const double channels = cut.channel_warps * kWarpChannels;
  const double element = static_cast<double>(core::dtype_size(p.dtype));
  const double bytes = o.resident * tile * element * (2 * channels + 2 * static_cast<double>(p.state));
  // Launch, latencies and the exchange; the loads, which do not overlap; then the warps' instructions.
  return o.waves * (8000 + bytes / 6 + o.warps * 1700);
}

std::vector<Cut> cuts(const ScanShape& p, const DeviceProperties& device, const ShortTuning& tuning) {
  std::vector<Cut> all;
  for (int channel_warps = 1; channel_warps * parts_of(p) <= kMostWarps; ++channel_warps) {
    if (tuning.channel_warps > 0 && channel_warps != tuning.channel_warps) continue;
    const int fitting = fitting_blocks(p, device, channel_warps);
    if (fitting == 0) break;
    all.push_back({channel_warps, tuning.min_blocks > 0 ? tuning.min_blocks : fitting,
                   cut_channels(p, channel_warps * kWarpChannels)});
  }
  return all;
}

bool takes(const ScanShape& p, const DeviceProperties& device) {
  return device.compute_major >= 9 && device.multiprocessors >= kFewestProcessors && !p.complex &&
         !p.full_matrix && has_vector_rows(p) && !p.b_layout.constant && !p.c_layout.constant &&
         cheap_input(p.options.discretization) && p.state % scan::kShortStates == 0 && p.state <= kStates &&
         p.dim < kChannels && p.seq > 0 && p.seq <= kSteps && !scans_sequentially(p) &&
         fitting_blocks(p, device, 1) > 0;
}

LaunchPlan plan(const ScanShape& p, const DeviceProperties& device, const ScanTuning* forced) {
  const auto tuning = tuning_or_default<ShortTuning>(forced);
  const Cut cut = cheapest(p, device, cuts(p, device, tuning),
                           [&](const Cut& candidate) { return estimate(p, device, candidate); });
  LaunchPlan launch;
  launch.spec = {"scan/short.cu",
                 "selective_scan_short",
                 {define("CLUSTER_BLOCKS", scan::kShortBlocks), define("CHANNEL_WARPS", cut.channel_warps),
                  define("MIN_BLOCKS", cut.min_blocks),
                  define("PIECE", copy_width(p, cut.channel_warps * kWarpChannels))}};
  add_scan_defines(p, &launch.spec.defines);
  launch.cut = cut.channels;
  launch.cluster = scan::kShortBlocks;
  launch.directions = directions_of(p);
  launch.block = {32, static_cast<unsigned>(cut.channel_warps * parts_of(p)), 1};
  launch.shared_bytes = shared_bytes(p, cut.channel_warps);
  return launch;
}

}  // namespace

const ScanKernel kShortScan = {"short", takes, plan};

}  // namespace exphil::cuda
