#include "cuda/scan/general.hpp"

#include <algorithm>
#include <cmath>

#include "cuda/scan/occupancy.hpp"
#include "kernels/scan/arguments.cuh"

namespace exphil::cuda {
namespace {

using core::ScanShape;

// L2 bandwidth of one multiprocessor while all of them read.
constexpr double kL2BytesPerCycle = 21;

// The largest block. Warps of 128 registers then fill a multiprocessor's 65536.
constexpr int kMostWarps = 16;

// Floats of state times steps that a tile unrolls for one lane: the values loaded ahead must fit in
// registers, and two copies of the tile's rows in shared memory.
constexpr int kTileFloats = 64;

struct Cut {
  int lanes = 1, per_lane = 1;            // of a channel, and the states of each
  int steps = 0;                          // of a tile
  int warps = 1;                          // warps of a block
  int max_threads = 256, min_blocks = 2;  // launch bounds
  ChannelCut channels;
};

// The fewest lanes with at most four floats of state each (see kTileFloats), up to a full warp.
int fewest_lanes(const ScanShape& p) {
  const int most_states = p.complex ? 2 : 4;
  int lanes = 1;
  while (lanes < 32 && lanes * most_states < p.state) lanes *= 2;
  return lanes;
}

int states_per_lane(const ScanShape& p, int lanes) {
  return next_power_of_two((p.state + lanes - 1) / lanes);
}

int tile_steps(const ScanShape& p) {
  const int lanes = fewest_lanes(p), floats = states_per_lane(p, lanes) * (p.complex ? 2 : 1);
  return std::max(1, kTileFloats / std::max(4, floats));
}

// Launch bounds for a block of that many warps. One variant serves every block of its size
// class.
void set_bounds(Cut* cut) {
  cut->max_threads = cut->warps <= 8 ? 256 : cut->warps <= 12 ? 384 : 512;
  cut->min_blocks = cut->warps <= 8 ? 2 : 1;
}

scan::Layout layout_of(const ScanShape& p, const Cut& cut) {
  return {cut.lanes * cut.per_lane * (p.complex ? 2 : 1),
          cut.steps,
          32 / cut.lanes,
          !p.complex && p.dtype != core::Dtype::f32,
          !p.b_layout.constant,
          !p.c_layout.constant,
          cut.warps};
}

std::size_t shared_bytes(const ScanShape& p, const Cut& cut) {
  return static_cast<std::size_t>(layout_of(p, cut).bytes());
}

// Bytes that one block reads from the L2 for one tile: b and c, and full sectors of x, dt and y.
double tile_bytes(const ScanShape& p, const Cut& cut) {
  const scan::Layout layout = layout_of(p, cut);
  const double element = static_cast<double>(core::dtype_size(p.dtype));
  const double channels = std::ceil(layout.channels * cut.warps * element / 32) * 32;
  return layout.steps * (layout.projections() * layout.row_floats * 4.0 + 3 * channels);
}

// Issue slots of one warp for one tile, counted in the disassembly for sm_90.
double tile_slots(const ScanShape& p, const Cut& cut) {
  const double states = cut.per_lane * (p.complex ? 8.0 : 1.0), lanes = cut.lanes;
  const double reduce = 4 * (lanes - 1) / lanes + states / 2;
  const double elements = std::max(1.0, cut.steps / lanes);
  const double pieces = std::ceil(cut.steps * cut.lanes * cut.per_lane / 4.0 / (32.0 * cut.warps));
  const double fixed = 55 + 16 * pieces + 20 * elements;
  return cut.steps * (3 + 5 * states + reduce) + fixed;
}

// Instructions issued per cycle and scheduler with `warps` warps to choose from.
double issue_rate(double warps) {
  return std::min(0.9, 0.4 + 0.17 * warps);
}

// Estimated cycles.
double estimate(const ScanShape& p, const DeviceProperties& device, const Cut& cut) {
  const int by_registers = cut.max_threads / 32 * cut.min_blocks / cut.warps;
  const int fitting = std::max(1, std::min(by_registers, blocks_by_shared(device, shared_bytes(p, cut))));
  const double blocks =
      static_cast<double>(p.batch) * static_cast<double>(cut.channels.blocks()) * directions_of(p);
  const double multiprocessors = std::max(1, device.multiprocessors);
  const Occupancy o = occupancy(device, blocks, fitting, multiprocessors * fitting, cut.warps);
  const double tiles = std::ceil(static_cast<double>(p.seq) / cut.steps);
  const double barriers = o.resident > 1 ? 50 : 200;  // another block runs during the wait
  const double issue = tile_slots(p, cut) * o.warps / issue_rate(o.warps);
  const double memory = o.resident * tile_bytes(p, cut) / kL2BytesPerCycle;
  const double tile = std::max(issue, memory) + 0.2 * std::min(issue, memory) + barriers;
  return o.waves * (tiles * tile + 1500);  // a block's first loads and its launch do not overlap
}

std::vector<Cut> cuts(const ScanShape& p, const DeviceProperties& device, const GeneralTuning& tuning) {
  const int fewest = fewest_lanes(p);
  // With twice the lanes each keeps two states: the order of the sum over states stays the same.
  const bool twice = !p.complex && states_per_lane(p, fewest) == 4 && fewest < 32;
  std::vector<Cut> all;
  for (int lanes = fewest; lanes <= fewest * (twice ? 2 : 1); lanes *= 2) {
    for (int warps = 1; warps <= kMostWarps; ++warps) {
      if (tuning.warps > 0 && warps != tuning.warps) continue;
      Cut cut;
      cut.lanes = lanes, cut.per_lane = states_per_lane(p, lanes);
      cut.steps = tuning.steps > 0 ? tuning.steps : tile_steps(p);
      cut.warps = warps;
      set_bounds(&cut);
      if (tuning.min_blocks > 0) cut.min_blocks = tuning.min_blocks;
      cut.channels = cut_channels(p, warps * (32 / lanes));
      if (shared_bytes(p, cut) <= static_cast<std::size_t>(device.max_shared_per_block)) all.push_back(cut);
    }
  }
  return all;
}

bool takes(const ScanShape& p, const DeviceProperties&) {
  return !p.full_matrix;
}

LaunchPlan plan(const ScanShape& p, const DeviceProperties& device, const ScanTuning* forced) {
  const auto tuning = tuning_or_default<GeneralTuning>(forced);
  const Cut cut = cheapest(p, device, cuts(p, device, tuning),
                           [&](const Cut& candidate) { return estimate(p, device, candidate); });
  LaunchPlan launch;
  launch.spec = {"scan/general.cu",
                 "selective_scan",
                 {define("COMPLEX", p.complex), define("LANES", cut.lanes), define("PER_LANE", cut.per_lane),
                  define("STEPS", cut.steps), define("B_CONSTANT", p.b_layout.constant),
                  define("C_CONSTANT", p.c_layout.constant), define("VECTOR_ROWS", has_vector_rows(p)),
                  define("MAX_THREADS", cut.max_threads), define("MIN_BLOCKS", cut.min_blocks)}};
  add_scan_defines(p, &launch.spec.defines);
  launch.cut = cut.channels;
  launch.directions = directions_of(p);
  launch.block = {32, static_cast<unsigned>(cut.warps), 1};
  launch.shared_bytes = shared_bytes(p, cut);
  return launch;
}

}  // namespace

const ScanKernel kGeneralScan = {"general", takes, plan};

}  // namespace exphil::cuda
