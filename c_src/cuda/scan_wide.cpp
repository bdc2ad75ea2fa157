// See scan_wide.hpp.
#include "cuda/scan_wide.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "kernels/selective_scan_arguments.cuh"

namespace exphil::cuda {
namespace {

using core::ScanProblem;

constexpr int kSteps = 16;  // of a chunk: what a walk has in flight
constexpr int kGroups = 2;  // warps of a block, which share rows of b and c but wait for each other
constexpr int kWarps = 16;  // of a multiprocessor: 128 registers a lane of 65536

int lanes_of(const ScanProblem& p) {
  return static_cast<int>(p.state / 4);
}

// Widening halves of b and c for four chunks takes longer here than in the general kernel: 32x60x512x16 of
// f16 takes 14.5 us, there 13.6 (H200).
constexpr std::int64_t kShortHalves = 64;

bool pairs_aligned(const ScanProblem& p, const core::ScanOutputs& out) {
  const std::uintptr_t pair = 2 * core::dtype_size(p.dtype);
  for (const void* data :
       {p.x, p.dt, p.z, static_cast<const void*>(out.y), static_cast<const void*>(out.y_reverse)}) {
    if (reinterpret_cast<std::uintptr_t>(data) % pair != 0) return false;
  }
  return true;
}

}  // namespace

bool scans_wide(const ScanProblem& p, const core::ScanOutputs& out, bool vector_rows) {
  const bool lanes = p.state % 4 == 0 && p.state <= 128 && (p.state & (p.state - 1)) == 0;
  const bool short_halves = p.dtype != core::Dtype::f32 && p.seq <= kShortHalves;
  return lanes && !short_halves && scans_sequentially(p) && vector_rows && !p.complex && !p.full_matrix &&
         !p.b_layout.constant && !p.c_layout.constant && span_of(p) % 2 == 0 && pairs_aligned(p, out);
}

ScanPlan plan_wide(const ScanProblem& p, const DeviceProperties& device, const ScanTuning& tuning) {
  ScanPlan plan;
  plan.sequential = true;
  plan.steps = tuning.steps > 0 ? tuning.steps : kSteps;
  plan.groups = tuning.groups > 0 ? tuning.groups : kGroups;
  plan.min_blocks = tuning.min_blocks > 0 ? tuning.min_blocks : std::max(1, kWarps / plan.groups);
  // kSteps fit every device (33 KiB at the most); a wish may not.
  const auto most = static_cast<std::size_t>(device.max_shared_per_block);
  while (plan.steps > 1 && wide_shared_bytes(p, plan) > most) plan.steps /= 2;
  cut_channels(p, plan.groups * 2 * (32 / lanes_of(p)), &plan);
  return plan;
}

std::size_t wide_shared_bytes(const ScanProblem& p, const ScanPlan& plan) {
  return static_cast<std::size_t>(scan::wide_chunk_bytes(static_cast<int>(p.state), plan.steps, plan.groups,
                                                         p.dtype != core::Dtype::f32));
}

KernelSpec wide_kernel_spec(const ScanProblem& p, const ScanPlan& plan, bool write_states) {
  KernelSpec spec{
      "selective_scan_wide.cu",
      "selective_scan_wide",
      {define("STEPS", plan.steps), define("GROUPS", plan.groups), define("MIN_BLOCKS", plan.min_blocks)}};
  add_problem_defines(p, write_states, &spec.defines);
  return spec;
}

}  // namespace exphil::cuda
