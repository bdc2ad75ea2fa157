// Which scans walk through time, the cost model of that walk and its -D interface; see plan.hpp.
#include "cuda/scan/plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.hpp"

namespace exphil::cuda {
namespace {

using core::ScanAlgorithm;
using core::ScanOperand;
using core::ScanShape;

// Up to here the warps of a batch-1 scan finish before a second pass over time would.
constexpr std::int64_t kSequentialSteps = 64;
// From here on the channels of a single sequence fill every device there is.
constexpr std::int64_t kSequentialChannels = 16384;

// scan/chunked.cu counts in ints: steps, rounded up to whole rounds of its blocks, and bytes across
// as many rows as a block copies at once (below 1024).
constexpr std::int64_t kMostChunkedSteps = (std::int64_t{1} << 31) - (std::int64_t{1} << 20);
constexpr std::int64_t kMostRowBytes = std::int64_t{1} << 21;

// What one multiprocessor gets from the L2 when all of them read.
constexpr double kL2BytesPerCycle = 21;

// The largest block. Warps of 128 registers then fill a multiprocessor's 65536.
constexpr int kMostWarps = 16;

// States times steps, in floats, that a tile unrolls for one lane: what it loads ahead of them must fit in
// registers, and the tile's rows twice in shared memory.
constexpr int kTileFloats = 64;

int next_power_of_two(std::int64_t value) {
  int power = 1;
  while (power < value) power *= 2;
  return power;
}

// The fewest lanes whose states stay within four floats each (see kTileFloats), as far as a warp has lanes.
int fewest_lanes(const ScanShape& p) {
  const int most_states = p.complex ? 2 : 4;
  int lanes = 1;
  while (lanes < 32 && lanes * most_states < p.state) lanes *= 2;
  return lanes;
}

int states_per_lane(const ScanShape& p, int lanes) {
  return next_power_of_two((p.state + lanes - 1) / lanes);
}

// Changes no bit of a walk.
int tile_steps(const ScanShape& p) {
  const int lanes = fewest_lanes(p), floats = states_per_lane(p, lanes) * (p.complex ? 2 : 1);
  return std::max(1, kTileFloats / std::max(4, floats));
}

// Launch bounds that a block of so many warps is compiled for; one variant serves every block of its size
// class.
void set_bounds(int warps, ScanPlan* plan) {
  plan->max_threads = warps <= 8 ? 256 : warps <= 12 ? 384 : 512;
  plan->min_blocks = warps <= 8 ? 2 : 1;
}

// Bytes that one block takes from the L2 for one tile: b and c, and whole sectors of x, dt and y.
double tile_bytes(const ScanShape& p, const ScanPlan& plan) {
  const scan::Layout layout = scan_layout(p, plan);
  const double element = static_cast<double>(core::dtype_size(p.dtype));
  const double channels = std::ceil(layout.channels * plan.groups * element / 32) * 32;
  return layout.steps * (layout.projections() * layout.row_floats * 4.0 + 3 * channels);
}

// Issue slots of one warp for one tile, counted in the disassembly for sm_90.
double tile_slots(const ScanShape& p, const ScanPlan& plan) {
  const double states = plan.per_lane * (p.complex ? 8.0 : 1.0), lanes = plan.lanes;
  const double reduce = 4 * (lanes - 1) / lanes + states / 2;
  const double elements = std::max(1.0, plan.steps / lanes);
  const double pieces = std::ceil(plan.steps * plan.lanes * plan.per_lane / 4.0 / (32.0 * plan.groups));
  const double fixed = 55 + 16 * pieces + 20 * elements;
  return plan.steps * (3 + 5 * states + reduce) + fixed;
}

// Instructions issued per cycle and scheduler with `warps` of them to choose from.
double issue_rate(double warps) {
  return std::min(0.9, 0.4 + 0.17 * warps);
}

// Estimated cycles; infinite where the variant does not fit the device.
double estimate(const ScanShape& p, const DeviceProperties& device, const ScanPlan& plan) {
  const int bytes = scan_layout(p, plan).bytes();
  if (bytes > device.max_shared_per_block) return std::numeric_limits<double>::infinity();
  const int by_registers = plan.max_threads / 32 * plan.min_blocks / plan.groups;
  const int by_shared = device.max_shared_per_block / (bytes + kReservedShared);
  const int fitting = std::max(1, std::min(by_registers, by_shared));
  const double blocks = static_cast<double>(p.batch) * static_cast<double>(plan.blocks_per_batch()) *
                        (p.options.direction == core::Direction::both ? 2 : 1);
  const double chips = std::max(1, device.multiprocessors);
  const double resident = std::min<double>(fitting, std::ceil(blocks / chips));
  const double waves = std::max(1.0, std::ceil(blocks / (chips * resident)));
  const double warps_per_scheduler = std::max(1.0, resident * plan.groups / 4.0);
  const double tiles = std::ceil(static_cast<double>(p.seq) / plan.steps);
  const double barriers = resident > 1 ? 50 : 200;  // another block fills the wait
  const double issue = tile_slots(p, plan) * warps_per_scheduler / issue_rate(warps_per_scheduler);
  const double memory = resident * tile_bytes(p, plan) / kL2BytesPerCycle;
  const double tile = std::max(issue, memory) + 0.2 * std::min(issue, memory) + barriers;
  return waves * (tiles * tile + 1500);  // a block's first loads and its launch: nothing overlaps them
}

// One way to cut; tuning's wishes and the limits of a block have been seen to.
double consider(const ScanShape& p, const DeviceProperties& device, const ScanTuning& tuning, int lanes,
                int groups, ScanPlan* candidate) {
  candidate->lanes = lanes, candidate->per_lane = states_per_lane(p, lanes);
  candidate->groups = groups;
  set_bounds(groups, candidate);
  if (tuning.min_blocks > 0) candidate->min_blocks = tuning.min_blocks;
  cut_channels(p, candidate->groups * (32 / candidate->lanes), candidate);
  return estimate(p, device, *candidate);
}

void choose_shape(const ScanShape& p, const DeviceProperties& device, const ScanTuning& tuning,
                  ScanPlan* plan) {
  const int fewest = fewest_lanes(p);
  // Twice the lanes keep two states each: the order of the sum over states stays the same.
  const bool twice = !p.complex && states_per_lane(p, fewest) == 4 && fewest < 32;
  double best = std::numeric_limits<double>::infinity();
  ScanPlan chosen = *plan;
  for (int lanes = fewest; lanes <= fewest * (twice ? 2 : 1); lanes *= 2) {
    for (int groups = 1; groups <= kMostWarps; ++groups) {
      if (tuning.groups > 0 && groups != tuning.groups) continue;
      ScanPlan candidate = *plan;
      const double cycles = consider(p, device, tuning, lanes, groups, &candidate);
      if (cycles < best) best = cycles, chosen = candidate;
    }
  }
  if (best == std::numeric_limits<double>::infinity()) {
    core::fail(core::ErrorKind::limit_exceeded, "b", "a scan with state ", p.state,
               " needs more shared memory than ", device.max_shared_per_block, " bytes a block");
  }
  *plan = chosen;
}

// Whether scan/chunked.cu can count the problem's steps and the bytes of its rows.
bool fits_ints(const ScanShape& p) {
  const auto row_fits = [&p](const core::ProjectionLayout& layout) {
    const std::int64_t size = p.complex ? 8 : static_cast<std::int64_t>(core::dtype_size(p.dtype));
    return layout.constant || layout.groups * p.state * size < kMostRowBytes;
  };
  return p.seq < kMostChunkedSteps &&
         p.dim * static_cast<std::int64_t>(core::dtype_size(p.dtype)) < kMostRowBytes &&
         row_fits(p.b_layout) && row_fits(p.c_layout);
}

}  // namespace

scan::Layout scan_layout(const ScanShape& p, const ScanPlan& plan) {
  return {plan.lanes * plan.per_lane * (p.complex ? 2 : 1),
          plan.steps,
          32 / plan.lanes,
          !p.complex && p.dtype != core::Dtype::f32,
          !p.b_layout.constant,
          !p.c_layout.constant,
          plan.groups};
}

int element_number(core::Dtype dtype) {
  return dtype == core::Dtype::f16 ? 1 : dtype == core::Dtype::bf16 ? 2 : 0;
}

std::string define(const char* name, std::int64_t value) {
  return core::message(name, "=", value);
}

void add_problem_defines(const ScanShape& p, std::vector<std::string>* defines) {
  const core::ScanOptions& o = p.options;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::string& each :
       {define("STATE", p.state), define("ELEMENT", element_number(p.dtype)),
        define("DISCRETIZATION", static_cast<int>(o.discretization)), define("SOFTPLUS", o.dt_softplus),
        define("CLIP", o.dt_min != -infinity || o.dt_max != infinity), define("HAS_D", p.has(ScanOperand::d)),
        define("HAS_Z", p.has(ScanOperand::z)), define("WRITE_STATES", p.has(ScanOperand::states))}) {
    defines->push_back(each);
  }
}

std::int64_t span_of(const ScanShape& p) {
  const std::int64_t b_channels = p.b_layout.constant ? p.dim : p.dim / p.b_layout.groups;
  const std::int64_t c_channels = p.c_layout.constant ? p.dim : p.dim / p.c_layout.groups;
  return std::gcd(b_channels, c_channels);
}

void cut_channels(const ScanShape& p, std::int64_t per_block, ScanPlan* plan) {
  plan->span_channels = span_of(p), plan->spans = p.dim / plan->span_channels;
  plan->blocks_per_span = (plan->span_channels + per_block - 1) / per_block;
}

int piece_of(const ScanShape& p, const ScanPlan& plan, std::int64_t across) {
  const std::int64_t size = static_cast<std::int64_t>(core::dtype_size(p.dtype));
  std::int64_t piece = 16 / size;
  const auto misplaced = [&](ScanOperand id) { return p.has(id) && p.alignment[id] < piece * size; };
  while (piece > 1 && (plan.span_channels % piece != 0 || across % piece != 0 || misplaced(ScanOperand::x) ||
                       misplaced(ScanOperand::dt) || misplaced(ScanOperand::z))) {
    piece /= 2;
  }
  return static_cast<int>(piece);
}

bool scans_sequentially(const ScanShape& p) {
  // Before the caller's wish: a walk of such a problem is slow, chunks would be wrong.
  if (!fits_ints(p)) return true;
  if (p.options.algorithm != ScanAlgorithm::automatic) {
    return p.options.algorithm == ScanAlgorithm::sequential;
  }
  return p.seq <= kSequentialSteps || p.dim >= kSequentialChannels;
}

ScanPlan plan_scan(const ScanShape& p, const DeviceProperties& device, const ScanTuning& tuning) {
  ScanPlan plan;
  plan.steps = tuning.steps > 0 ? tuning.steps : tile_steps(p);
  choose_shape(p, device, tuning, &plan);
  return plan;
}

bool has_vector_rows(const ScanShape& p) {
  const int piece = !p.complex && p.dtype != core::Dtype::f32 ? 8 : 16;
  const bool b_aligned = p.b_layout.constant || p.alignment[ScanOperand::b] >= piece;
  const bool c_aligned = p.c_layout.constant || p.alignment[ScanOperand::c] >= piece;
  return p.state * (p.complex ? 2 : 1) % 4 == 0 && b_aligned && c_aligned;
}

KernelSpec scan_kernel_spec(const ScanShape& p, const ScanPlan& plan) {
  KernelSpec spec{
      "scan/general.cu",
      "selective_scan",
      {define("COMPLEX", p.complex), define("LANES", plan.lanes), define("PER_LANE", plan.per_lane),
       define("STEPS", plan.steps), define("B_CONSTANT", p.b_layout.constant),
       define("C_CONSTANT", p.c_layout.constant), define("VECTOR_ROWS", has_vector_rows(p)),
       define("MAX_THREADS", plan.max_threads), define("MIN_BLOCKS", plan.min_blocks)}};
  add_problem_defines(p, &spec.defines);
  return spec;
}

}  // namespace exphil::cuda
