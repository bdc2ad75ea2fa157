// See chunked.hpp.
#include "cuda/scan/chunked.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "kernels/scan/arguments.cuh"

namespace exphil::cuda {
namespace {

using core::ScanShape;

// What decides the bits. Chunks of 16 real steps (8 complex ones) of two states at a time fill a lane's
// registers. More chunks to a tile cost stages of the combination, fewer leave a narrow scan too few warps.
constexpr int kRealSteps = 16, kComplexSteps = 8;
constexpr int kChunks = 4, kNarrowChunks = 8;
constexpr std::int64_t kNarrow = 512;      // channels
constexpr std::int64_t kManyFloats = 256;  // of the states of a channel
constexpr int kTogether = 2;

// Warps of a multiprocessor: 168 registers a lane.
constexpr int kMostWarps = 12;
constexpr int kFewestWarps = 8;   // whatever the registers: 255 are the most a lane can have
constexpr int kMostTimes = 15;    // named barriers of a block
constexpr int kMostSplit = 8;     // blocks of a cluster that every device with clusters takes
constexpr int kSliceFloats = 16;  // of a row of b or c in shared memory at a time

int floats_of(const ScanShape& p) {
  return p.complex ? 2 : 1;
}

std::int64_t tiles_of(const ScanShape& p, const ScanPlan& plan) {
  const std::int64_t tile = plan.steps * plan.chunks;
  return (p.seq + tile - 1) / tile;
}

std::int64_t blocks_of(const ScanShape& p, const ScanPlan& plan) {
  const int directions = p.options.direction == core::Direction::both ? 2 : 1;
  return p.batch * plan.blocks_per_batch() * plan.split * directions;
}

// One way to cut; as many states of b and c at a time as fit. False where nothing fits.
bool cut(const ScanShape& p, const DeviceProperties& device, const ScanTuning& tuning, int groups, int times,
         int split, ScanPlan* plan) {
  plan->groups = groups, plan->times = times, plan->split = split;
  cut_channels(p, groups * (32 / plan->chunks), plan);
  // Fewer warps than fit may have more registers each.
  const std::int64_t chips = std::max(1, device.multiprocessors);
  const std::int64_t share = (blocks_of(p, *plan) + chips - 1) / chips;
  const int fitting = std::max(1, kMostWarps / (groups * times));
  const int most = share <= 2 ? std::min(static_cast<int>(share), fitting) : fitting;
  plan->min_blocks = tuning.min_blocks > 0 ? tuning.min_blocks : std::max(1, most);
  const int states = scan::chunked_states(static_cast<int>(p.state), plan->together);
  const std::size_t room = static_cast<std::size_t>(device.max_shared_per_block);
  for (int slice = kSliceFloats / floats_of(p); slice * floats_of(p) >= 4; slice /= 2) {
    plan->slice = std::min(states, slice);
    plan->buffers = tiles_of(p, *plan) <= times * split && states <= plan->slice ? 1 : 2;
    if (chunked_shared_bytes(p, *plan) <= room) return true;
  }
  return false;
}

// Estimated cycles, fitted to bench/results/gpu_scan.md.
double estimate(const ScanShape& p, const DeviceProperties& device, const ScanPlan& plan) {
  const double states = std::ceil(static_cast<double>(p.state) / plan.together);
  const double stages = std::ceil(static_cast<double>(p.state) / plan.slice);
  const double slots = states * (p.complex ? 930 : 290) + 390 + 60 * stages;  // of one warp for one tile
  const double chips = std::max(1, device.multiprocessors);
  const double by_shared =
      std::floor(device.max_shared_per_block / (chunked_shared_bytes(p, plan) + 1.0 * kReservedShared));
  const int by_registers = std::max(plan.min_blocks, kFewestWarps / (plan.groups * plan.times));
  const double fitting = std::max(1.0, std::min<double>(by_registers, by_shared));
  // Clusters stay within a part of the chip each, where some multiprocessors may be left over.
  const double blocks = static_cast<double>(blocks_of(p, plan)), room = plan.split > 2 ? 0.9 * chips : chips;
  const double resident = std::min(fitting, std::ceil(blocks / chips));
  const double waves = std::ceil(blocks / (room * fitting));
  const double warps = std::max(1.0, resident * plan.groups * plan.times / 4.0);  // of a scheduler
  const int turns = plan.times * plan.split;
  // Narrow blocks read parts of sectors and share b and c with nobody; warps in turn wait for states.
  const double narrow = 1 + 0.05 * std::max(0, 4 - plan.groups), waiting = turns > 1 ? 1.04 : 1;
  const double hops = (turns - 1) * 500.0;  // of a state, once around
  const double round = std::max(slots * (1.6 + warps) * narrow * waiting, hops);
  const double rounds = std::ceil(static_cast<double>(tiles_of(p, plan)) / turns);
  return waves * (rounds * round + hops + 8000);
}

}  // namespace

ScanPlan plan_chunked(const ScanShape& p, const DeviceProperties& device, const ScanTuning& tuning) {
  ScanPlan plan;
  plan.sequential = false;
  plan.steps = tuning.steps > 0 ? tuning.steps : p.complex ? kComplexSteps : kRealSteps;
  // The states of a narrower warp take less shared memory as well.
  const bool narrow = p.dim < kNarrow || p.state * floats_of(p) > kManyFloats;
  plan.chunks = tuning.chunks > 0 ? tuning.chunks : narrow ? kNarrowChunks : kChunks;
  plan.together = std::min<int>(tuning.together > 0 ? tuning.together : kTogether, static_cast<int>(p.state));
  // A cluster's blocks lie in one part of the chip: that of a small device may not have room for eight.
  const int most_split = device.compute_major < 9 ? 1 : device.multiprocessors < 64 ? 2 : kMostSplit;
  double best = std::numeric_limits<double>::infinity();
  ScanPlan chosen;
  for (int groups = 1; groups <= kMostWarps; ++groups) {
    if (tuning.groups > 0 && groups != tuning.groups) continue;
    if (tuning.groups == 0 && (groups - 1) * (32 / plan.chunks) >= span_of(p)) break;
    for (int times = 1; times * groups <= kMostWarps && times <= kMostTimes; ++times) {
      if (tuning.times > 0 && times != tuning.times) continue;
      // Every cut is a kernel to compile: those that would leave warps over are not worth one.
      if (tuning.groups * tuning.times == 0 && kMostWarps % (groups * times) != 0) continue;
      for (int split = 1; split <= most_split; split *= 2) {
        if (tuning.split > 0 && split != tuning.split) continue;
        if (split > 1 && times * (split / 2) >= tiles_of(p, plan)) continue;  // some would have nothing to do
        if (!cut(p, device, tuning, groups, times, split, &plan)) continue;
        const double cycles = estimate(p, device, plan);
        if (cycles < best) best = cycles, chosen = plan;
      }
    }
  }
  if (best == std::numeric_limits<double>::infinity()) {
    core::fail(core::ErrorKind::limit_exceeded, "b", "a scan with state ", p.state,
               " needs more shared memory than ", device.max_shared_per_block, " bytes a block");
  }
  return chosen;
}

std::size_t chunked_shared_bytes(const ScanShape& p, const ScanPlan& plan) {
  const int projections = (p.b_layout.constant ? 0 : 1) + (p.c_layout.constant ? 0 : 1);
  return static_cast<std::size_t>(scan::chunked_bytes(
      static_cast<int>(p.state), plan.together, plan.slice, floats_of(p),
      p.options.discretization == formulas::Discretization::foh, plan.steps, plan.chunks, plan.groups,
      plan.times, plan.buffers, projections, static_cast<int>(core::dtype_size(p.dtype))));
}

KernelSpec chunked_kernel_spec(const ScanShape& p, const ScanPlan& plan) {
  KernelSpec spec{"scan/chunked.cu",
                  "selective_scan_chunked",
                  {define("COMPLEX", p.complex), define("STEPS", plan.steps), define("CHUNKS", plan.chunks),
                   define("STATES_PER_PASS", plan.together), define("STAGED_STATES", plan.slice),
                   define("BUFFERS", plan.buffers), define("CHANNEL_WARPS", plan.groups),
                   define("TIME_WARPS", plan.times), define("CLUSTER_BLOCKS", plan.split),
                   define("MIN_BLOCKS", plan.min_blocks), define("B_CONSTANT", p.b_layout.constant),
                   define("C_CONSTANT", p.c_layout.constant), define("VECTOR_ROWS", has_vector_rows(p)),
                   define("PIECE", piece_of(p, plan, plan.groups * (32 / plan.chunks)))}};
  add_problem_defines(p, &spec.defines);
  return spec;
}

}  // namespace exphil::cuda
