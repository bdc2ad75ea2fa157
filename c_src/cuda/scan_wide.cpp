// See scan_wide.hpp.
#include "cuda/scan_wide.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "kernels/selective_scan_arguments.cuh"

namespace exphil::cuda {
namespace {

using core::ScanProblem;

// Few channels or very long sequences take the general kernel, whose chunks are twice as long: what bounds
// them is the way of the state from chunk to chunk.
constexpr std::int64_t kFewChannels = 512;
constexpr std::int64_t kVeryLong = 16384;
// Steps of a chunk: what keeps a lane's decays within its registers, and what a walk has in flight.
constexpr int kChunkSteps = 8, kWalkSteps = 16;
// Warps of a multiprocessor: 168 registers a lane for chunks, 128 for a walk (65536 registers).
constexpr int kChunkWarps = 12, kWalkWarps = 16;
constexpr int kMostTimes = 15;  // named barriers of a block
constexpr int kWalkGroups = 2;  // warps of a block that walk side by side

int lanes_of(const ScanProblem& p) {
  return static_cast<int>(p.state / 4);
}

std::int64_t span_of(const ScanProblem& p) {
  return std::gcd(p.dim / p.b_layout.groups, p.dim / p.c_layout.groups);
}

bool pairs_aligned(const ScanProblem& p, const core::ScanOutputs& out) {
  const std::uintptr_t pair = 2 * core::dtype_size(p.dtype);
  for (const void* data :
       {p.x, p.dt, p.z, static_cast<const void*>(out.y), static_cast<const void*>(out.y_reverse)}) {
    if (reinterpret_cast<std::uintptr_t>(data) % pair != 0) return false;
  }
  return true;
}

void cut(const ScanProblem& p, int groups, int times, ScanPlan* plan) {
  const std::int64_t per_block = groups * 2 * (32 / lanes_of(p));
  plan->groups = groups, plan->times = times;
  plan->span_channels = span_of(p), plan->spans = p.dim / plan->span_channels;
  plan->blocks_per_span = (plan->span_channels + per_block - 1) / per_block;
  const int warps = plan->sequential ? kWalkWarps : kChunkWarps;
  plan->min_blocks = std::max(1, warps / (groups * times));
}

// Estimated cycles of a multiprocessor that has the most to do. The constants are fitted to
// bench/results/gpu_scan.md.
double estimate(const ScanProblem& p, const DeviceProperties& device, const ScanPlan& plan) {
  constexpr double kShare =
      1090;  // of a scheduler, for one warp's chunk: 750 instructions and what they wait for
  constexpr double kAlone = 2250;  // a warp's chunk where nothing else runs
  constexpr double kHop = 400;     // a state from one warp to the next
  constexpr double kStart = 2500;  // launch and first loads
  const double blocks = static_cast<double>(p.batch * plan.blocks_per_batch()) *
                        (p.options.direction == core::ScanDirection::both ? 2 : 1);
  const double chips = std::max(1, device.multiprocessors);
  const double resident = std::min<double>(plan.min_blocks, std::ceil(blocks / chips));
  const double waves = std::ceil(blocks / (chips * resident));
  const double warps = std::ceil(resident * plan.groups * plan.times / 4.0);  // of the fullest scheduler
  const double round = std::max({kAlone, warps * kShare, plan.sequential ? 0.0 : plan.times * kHop});
  const double rounds = std::ceil(static_cast<double>(p.seq) / (plan.steps * plan.times));
  // Warps side by side share rows of b and c, but wait for each other.
  return waves * (rounds * round * (1 + 0.02 * plan.groups) + kStart);
}

}  // namespace

bool scans_wide(const ScanProblem& p, const core::ScanOutputs& out, bool vector_rows) {
  const bool lanes = p.state % 4 == 0 && p.state <= 128 && (p.state & (p.state - 1)) == 0;
  const bool fits = scans_sequentially(p) || (p.dim >= kFewChannels && p.seq < kVeryLong);
  return lanes && fits && vector_rows && !p.complex && !p.full_matrix && !p.b_layout.constant &&
         !p.c_layout.constant && span_of(p) % 2 == 0 && pairs_aligned(p, out);
}

ScanPlan plan_wide(const ScanProblem& p, const DeviceProperties& device, const ScanTuning& tuning) {
  ScanPlan plan;
  plan.sequential = scans_sequentially(p);
  plan.steps = tuning.steps > 0 ? tuning.steps : plan.sequential ? kWalkSteps : kChunkSteps;
  const int most = plan.sequential ? kWalkWarps / 2 : kChunkWarps;
  double best = std::numeric_limits<double>::infinity();
  ScanPlan chosen = plan;
  for (int groups = 1; groups <= most; ++groups) {
    for (int times = 1; times * groups <= most && times <= kMostTimes; ++times) {
      if (plan.sequential && times > 1) break;
      const int wished = tuning.groups > 0 ? tuning.groups : plan.sequential ? kWalkGroups : groups;
      if (groups != wished) continue;
      if (!plan.sequential && tuning.times > 0 && times != tuning.times) continue;
      cut(p, groups, times, &plan);
      if (tuning.min_blocks > 0) plan.min_blocks = tuning.min_blocks;
      if (wide_shared_bytes(p, plan) > static_cast<std::size_t>(device.max_shared_per_block)) continue;
      const double cycles = estimate(p, device, plan);
      if (cycles < best) best = cycles, chosen = plan;
    }
  }
  if (tuning.groups * tuning.times > most) {  // a benchmark's wish
    cut(p, tuning.groups, tuning.times, &plan);
    plan.min_blocks = std::max(1, tuning.min_blocks);
    chosen = plan;
  }
  return chosen;
}

std::size_t wide_shared_bytes(const ScanProblem& p, const ScanPlan& plan) {
  return static_cast<std::size_t>(plan.times) *
         static_cast<std::size_t>(scan::wide_chunk_bytes(static_cast<int>(p.state), plan.steps, plan.groups,
                                                         p.dtype != core::Dtype::f32));
}

KernelSpec wide_kernel_spec(const ScanProblem& p, const ScanPlan& plan, bool write_states) {
  const core::ScanOptions& o = p.options;
  const float infinity = std::numeric_limits<float>::infinity();
  const auto define = [](const char* name, std::int64_t value) { return core::message(name, "=", value); };
  return {"selective_scan_wide.cu",
          "selective_scan_wide",
          {define("STATE", p.state), define("ELEMENT", element_number(p.dtype)),
           define("DISCRETIZATION", static_cast<int>(o.discretization)), define("STEPS", plan.steps),
           define("SEQUENTIAL", plan.sequential), define("GROUPS", plan.groups), define("TIMES", plan.times),
           define("MIN_BLOCKS", plan.min_blocks), define("SOFTPLUS", o.dt_softplus),
           define("CLIP", o.dt_min != -infinity || o.dt_max != infinity), define("HAS_D", p.d != nullptr),
           define("HAS_Z", p.z != nullptr), define("WRITE_STATES", write_states)}};
}

}  // namespace exphil::cuda
