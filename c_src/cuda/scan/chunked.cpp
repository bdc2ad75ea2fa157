#include "cuda/scan/chunked.hpp"

#include <algorithm>
#include <cmath>

#include "cuda/scan/occupancy.hpp"
#include "kernels/scan/arguments.cuh"

namespace exphil::cuda {
namespace {

using core::ScanShape;

// These decide the bits. Chunks of 16 real steps (8 complex ones) of two states at a time fill a lane's
// registers. More chunks per tile cost stages of the combination, fewer leave a narrow scan too few warps.
constexpr int kRealSteps = 16, kComplexSteps = 8;
constexpr int kChunks = 4, kNarrowChunks = 8;
constexpr std::int64_t kNarrow = 512;      // channels
constexpr std::int64_t kManyFloats = 256;  // of the states of a channel
constexpr int kStatesPerPass = 2;

// Warps on a multiprocessor: 168 registers a lane.
constexpr int kMostWarps = 12;
constexpr int kFewestWarps = 8;        // with any number of registers: a lane has at most 255
constexpr int kMostTimeWarps = 15;     // named barriers of a block
constexpr int kMostClusterBlocks = 8;  // supported by every device with clusters
constexpr int kStagedFloats = 16;      // of a row of b or c in shared memory at a time

struct Cut {
  int steps = 0, chunks = 0;              // of a chunk, and of a tile
  int states_per_pass = 0;                // states that a lane scans at a time
  int staged_states = 0;                  // states of b and c in shared memory at a time
  int buffers = 0;                        // tiles of inputs in shared memory
  int channel_warps = 0, time_warps = 0;  // warps of a block side by side in channels, and in time
  int cluster_blocks = 0;                 // blocks of a cluster that share time
  int min_blocks = 0;                     // of a multiprocessor
  ChannelCut channels;

  int warps() const { return channel_warps * time_warps; }
  int turns() const { return time_warps * cluster_blocks; }  // warps that take tiles in turn
  int warp_channels() const { return 32 / chunks; }
};

int floats_of(const ScanShape& p) {
  return p.complex ? 2 : 1;
}

std::int64_t tiles_of(const ScanShape& p, const Cut& cut) {
  const std::int64_t tile = cut.steps * cut.chunks;
  return (p.seq + tile - 1) / tile;
}

std::int64_t blocks_of(const ScanShape& p, const Cut& cut) {
  return p.batch * cut.channels.blocks() * cut.cluster_blocks * directions_of(p);
}

std::size_t shared_bytes(const ScanShape& p, const Cut& cut) {
  const int projections = (p.b_layout.constant ? 0 : 1) + (p.c_layout.constant ? 0 : 1);
  return static_cast<std::size_t>(scan::chunked_bytes(
      static_cast<int>(p.state), cut.states_per_pass, cut.staged_states, floats_of(p),
      p.options.discretization == formulas::Discretization::foh, cut.steps, cut.chunks, cut.channel_warps,
      cut.time_warps, cut.buffers, projections, static_cast<int>(core::dtype_size(p.dtype))));
}

// Completes a cut with as many states of b and c at a time as fit. False where nothing fits.
bool complete(const ScanShape& p, const DeviceProperties& device, const ChunkedTuning& tuning, Cut* cut) {
  cut->channels = cut_channels(p, cut->channel_warps * cut->warp_channels());
  // With fewer warps than fit, each may have more registers.
  const std::int64_t multiprocessors = std::max(1, device.multiprocessors);
  const std::int64_t share = (blocks_of(p, *cut) + multiprocessors - 1) / multiprocessors;
  const int fitting = std::max(1, kMostWarps / cut->warps());
  const int most = share <= 2 ? std::min(static_cast<int>(share), fitting) : fitting;
  cut->min_blocks = tuning.min_blocks > 0 ? tuning.min_blocks : std::max(1, most);
  const int states = scan::chunked_states(static_cast<int>(p.state), cut->states_per_pass);
  const std::size_t room = static_cast<std::size_t>(device.max_shared_per_block);
  for (int staged_states = kStagedFloats / floats_of(p); staged_states * floats_of(p) >= 4;
       staged_states /= 2) {
    cut->staged_states = std::min(states, staged_states);
    cut->buffers = tiles_of(p, *cut) <= cut->turns() && states <= cut->staged_states ? 1 : 2;
    if (shared_bytes(p, *cut) <= room) return true;
  }
  return false;
}

// Estimated cycles, fitted to bench/results/gpu_scan.md.
double estimate(const ScanShape& p, const DeviceProperties& device, const Cut& cut) {
  const double states = std::ceil(static_cast<double>(p.state) / cut.states_per_pass);
  const double stages = std::ceil(static_cast<double>(p.state) / cut.staged_states);
  const double slots = states * (p.complex ? 930 : 290) + 390 + 60 * stages;  // of one warp for one tile
  const int by_registers = std::max(cut.min_blocks, kFewestWarps / cut.warps());
  const int fitting = std::max(1, std::min(by_registers, blocks_by_shared(device, shared_bytes(p, cut))));
  // Each cluster must fit in one GPC, which may leave some multiprocessors unused.
  const double multiprocessors = std::max(1, device.multiprocessors);
  const double reached = cut.cluster_blocks > 2 ? 0.9 * multiprocessors : multiprocessors;
  const Occupancy o =
      occupancy(device, static_cast<double>(blocks_of(p, cut)), fitting, reached * fitting, cut.warps());
  // Narrow blocks read partial sectors and do not share b and c; warps in turn wait for states.
  const double narrow = 1 + 0.05 * std::max(0, 4 - cut.channel_warps), waiting = cut.turns() > 1 ? 1.04 : 1;
  const double hops = (cut.turns() - 1) * 500.0;  // of passing a state through all turns
  const double round = std::max(slots * (1.6 + o.warps) * narrow * waiting, hops);
  const double rounds = std::ceil(static_cast<double>(tiles_of(p, cut)) / cut.turns());
  return o.waves * (rounds * round + hops + 8000);
}

// The part that all cuts of a scan have in common.
Cut first_cut(const ScanShape& p, const ChunkedTuning& tuning) {
  Cut cut;
  cut.steps = tuning.steps > 0 ? tuning.steps : p.complex ? kComplexSteps : kRealSteps;
  // The states of a narrower warp also take less shared memory.
  const bool narrow = p.dim < kNarrow || p.state * floats_of(p) > kManyFloats;
  cut.chunks = tuning.chunks > 0 ? tuning.chunks : narrow ? kNarrowChunks : kChunks;
  cut.states_per_pass = std::min<int>(tuning.states_per_pass > 0 ? tuning.states_per_pass : kStatesPerPass,
                                      static_cast<int>(p.state));
  return cut;
}

std::vector<Cut> cuts(const ScanShape& p, const DeviceProperties& device, const ChunkedTuning& tuning) {
  std::vector<Cut> all;
  Cut cut = first_cut(p, tuning);
  // A cluster must fit in one GPC, and those of a small device may not have eight multiprocessors.
  const int most_cluster_blocks = device.compute_major < 9      ? 1
                                  : device.multiprocessors < 64 ? 2
                                                                : kMostClusterBlocks;
  const auto differs = [](int forced, int value) { return forced > 0 && forced != value; };
  for (cut.channel_warps = 1; cut.channel_warps <= kMostWarps; ++cut.channel_warps) {
    if (differs(tuning.channel_warps, cut.channel_warps)) continue;
    if (tuning.channel_warps == 0 && (cut.channel_warps - 1) * cut.warp_channels() >= span_of(p)) break;
    for (cut.time_warps = 1; cut.warps() <= kMostWarps && cut.time_warps <= kMostTimeWarps;
         ++cut.time_warps) {
      if (differs(tuning.time_warps, cut.time_warps)) continue;
      // Every cut is a kernel to compile: skip those that would leave warp slots unused.
      if (tuning.channel_warps * tuning.time_warps == 0 && kMostWarps % cut.warps() != 0) continue;
      for (cut.cluster_blocks = 1; cut.cluster_blocks <= most_cluster_blocks; cut.cluster_blocks *= 2) {
        if (differs(tuning.cluster_blocks, cut.cluster_blocks)) continue;
        // Some blocks would have no work.
        if (cut.cluster_blocks > 1 && cut.time_warps * (cut.cluster_blocks / 2) >= tiles_of(p, cut)) continue;
        if (complete(p, device, tuning, &cut)) all.push_back(cut);
      }
    }
  }
  return all;
}

bool takes(const ScanShape& p, const DeviceProperties&) {
  return !p.full_matrix && !scans_sequentially(p);
}

KernelSpec spec_of(const ScanShape& p, const Cut& cut) {
  KernelSpec spec{"scan/chunked.cu",
                  "selective_scan_chunked",
                  {define("COMPLEX", p.complex), define("STEPS", cut.steps), define("CHUNKS", cut.chunks),
                   define("STATES_PER_PASS", cut.states_per_pass), define("STAGED_STATES", cut.staged_states),
                   define("BUFFERS", cut.buffers), define("CHANNEL_WARPS", cut.channel_warps),
                   define("TIME_WARPS", cut.time_warps), define("CLUSTER_BLOCKS", cut.cluster_blocks),
                   define("MIN_BLOCKS", cut.min_blocks), define("B_CONSTANT", p.b_layout.constant),
                   define("C_CONSTANT", p.c_layout.constant), define("VECTOR_ROWS", has_vector_rows(p)),
                   define("PIECE", copy_width(p, cut.channel_warps * cut.warp_channels()))}};
  add_scan_defines(p, &spec.defines);
  return spec;
}

LaunchPlan plan(const ScanShape& p, const DeviceProperties& device, const ScanTuning* forced) {
  const auto tuning = tuning_or_default<ChunkedTuning>(forced);
  const Cut cut = cheapest(p, device, cuts(p, device, tuning),
                           [&](const Cut& candidate) { return estimate(p, device, candidate); });
  LaunchPlan launch;
  launch.spec = spec_of(p, cut);
  launch.cut = cut.channels;
  launch.cluster = cut.cluster_blocks;
  launch.directions = directions_of(p);
  launch.block = {32, static_cast<unsigned>(cut.channel_warps), static_cast<unsigned>(cut.time_warps)};
  launch.shared_bytes = shared_bytes(p, cut);
  return launch;
}

}  // namespace

const ScanKernel kChunkedScan = {"chunked", takes, plan};

}  // namespace exphil::cuda
