// See short.hpp.
#include "cuda/scan/short.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/scan/arguments.cuh"

namespace exphil::cuda {
namespace {

using core::ScanShape;

constexpr std::int64_t kSteps = std::int64_t{scan::kShortBlocks} * scan::kShortChunks * scan::kShortSteps;
// With more channels the tiles of the chunked kernel fill a device, which is then faster.
constexpr std::int64_t kChannels = 512;
constexpr std::int64_t kStates = 64;  // eight warps share out the states of a channel

constexpr int kMostWarps = 12;         // of a multiprocessor: 168 registers a lane
constexpr int kFewestProcessors = 64;  // a smaller device may have no room for a cluster of eight

int parts_of(const ScanShape& p) {
  return static_cast<int>(p.state / scan::kShortStates);
}

// A lane has no registers for the inputs of its steps and computes them twice; where that takes more than v B
// the chunked kernel is faster (1x1024x256x16 on an H200: foh 15.1 for 24.1 us, highorder 13.8 for 18.7).
bool cheap_input(formulas::Discretization rule) {
  return rule == formulas::Discretization::zoh || rule == formulas::Discretization::bilinear;
}

// Blocks of so many warps side by side that fit a multiprocessor.
int fitting_blocks(const ScanShape& p, const DeviceProperties& device, int groups) {
  ScanPlan plan;
  plan.groups = groups;
  const int bytes = static_cast<int>(short_shared_bytes(p, plan));
  if (bytes > device.max_shared_per_block) return 0;
  const int by_shared = device.max_shared_per_block / (bytes + kReservedShared);
  return std::max(1, std::min(kMostWarps / (groups * parts_of(p)), by_shared));
}

// Clusters that fit a device at once with so many blocks to a multiprocessor. They lie within one part of the
// chip each, where some multiprocessors are left over: of the 132 of an H200, clusters of eight reach 120.
double clusters_at_once(const DeviceProperties& device, int blocks) {
  return std::max(1.0, std::floor(0.9 * device.multiprocessors * blocks / scan::kShortBlocks));
}

// Estimated cycles, fitted to bench/results/gpu_scan.md.
double estimate(const ScanShape& p, const DeviceProperties& device, const ScanPlan& plan) {
  const int directions = p.options.direction == core::Direction::both ? 2 : 1;
  const double clusters = static_cast<double>(p.batch * plan.blocks_per_batch() * directions);
  const double waves = std::ceil(clusters / clusters_at_once(device, plan.min_blocks));
  const double blocks = clusters * scan::kShortBlocks / std::max(1, device.multiprocessors);
  const double resident = std::min<double>(plan.min_blocks, std::ceil(blocks));
  const double tile = scan::kShortChunks * scan::kShortSteps;
  const double channels = plan.groups * 32.0 / plan.chunks;
  const double element = static_cast<double>(core::dtype_size(p.dtype));
  const double bytes = resident * tile * element * (2 * channels + 2 * static_cast<double>(p.state));
  const double warps = std::max(1.0, resident * plan.groups * plan.parts / 4);  // of a scheduler
  // Launch, latencies and the exchange; the loads, which nothing overlaps; then what the warps issue.
  return waves * (8000 + bytes / 6 + warps * 1700);
}

}  // namespace

bool scans_short(const ScanShape& p, const DeviceProperties& device) {
  return device.compute_major >= 9 && device.multiprocessors >= kFewestProcessors && !p.complex &&
         !p.full_matrix && has_vector_rows(p) && !p.b_layout.constant && !p.c_layout.constant &&
         cheap_input(p.options.discretization) && p.state % scan::kShortStates == 0 && p.state <= kStates &&
         p.dim < kChannels && p.seq > 0 && p.seq <= kSteps && !scans_sequentially(p) &&
         fitting_blocks(p, device, 1) > 0;
}

ScanPlan plan_short(const ScanShape& p, const DeviceProperties& device, const ScanTuning& tuning) {
  ScanPlan plan, chosen;
  plan.sequential = false;
  plan.steps = scan::kShortSteps, plan.chunks = scan::kShortChunks, plan.split = scan::kShortBlocks;
  plan.parts = parts_of(p);
  double best = std::numeric_limits<double>::infinity();
  for (int groups = 1; groups * plan.parts <= kMostWarps; ++groups) {
    if (tuning.groups > 0 && groups != tuning.groups) continue;
    plan.groups = groups;
    const int fitting = fitting_blocks(p, device, groups);
    if (fitting == 0) break;
    plan.min_blocks = tuning.min_blocks > 0 ? tuning.min_blocks : fitting;
    cut_channels(p, groups * (32 / plan.chunks), &plan);
    const double cycles = estimate(p, device, plan);
    if (cycles < best) best = cycles, chosen = plan;
  }
  return chosen;
}

std::size_t short_shared_bytes(const ScanShape& p, const ScanPlan& plan) {
  return static_cast<std::size_t>(scan::short_bytes(static_cast<int>(p.state), plan.groups,
                                                    static_cast<int>(core::dtype_size(p.dtype)),
                                                    p.has(core::ScanOperand::z)));
}

KernelSpec short_kernel_spec(const ScanShape& p, const ScanPlan& plan) {
  KernelSpec spec{"scan/short.cu",
                  "selective_scan_short",
                  {define("CLUSTER_BLOCKS", plan.split), define("CHANNEL_WARPS", plan.groups),
                   define("MIN_BLOCKS", plan.min_blocks),
                   define("PIECE", piece_of(p, plan, plan.groups * (32 / plan.chunks)))}};
  add_problem_defines(p, &spec.defines);
  return spec;
}

}  // namespace exphil::cuda
