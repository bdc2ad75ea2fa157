// Fills the kernel's arguments and launches it; see launcher.hpp.
#include "cuda/scan/launcher.hpp"

#include <algorithm>
#include <cstdint>

#include "core/error.hpp"
#include "cuda/jit/launch.hpp"
#include "cuda/scan/chunked.hpp"
#include "cuda/scan/short.hpp"
#include "cuda/scan/slice.hpp"
#include "cuda/scan/wide.hpp"
#include "kernels/scan/arguments.cuh"

namespace exphil::cuda {
namespace {

using core::Direction;
using core::ScanOutputs;
using core::ScanProblem;

constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;

bool half_rows(const ScanProblem& p) {
  return !p.complex && p.dtype != core::Dtype::f32;
}

// Whether b and c can be copied four elements at a time.
bool vector_rows(const ScanProblem& p) {
  const std::uintptr_t piece = half_rows(p) ? 8 : 16;
  const bool b_aligned = p.b_layout.constant || reinterpret_cast<std::uintptr_t>(p.b) % piece == 0;
  const bool c_aligned = p.c_layout.constant || reinterpret_cast<std::uintptr_t>(p.c) % piece == 0;
  return p.state * (p.complex ? 2 : 1) % 4 == 0 && b_aligned && c_aligned;
}

scan::Arguments arguments(const ScanProblem& p, const ScanOutputs& out, const ScanPlan& plan) {
  const std::int64_t floats = p.complex ? 2 : 1;
  scan::Arguments a{};
  a.x = p.x, a.dt = p.dt, a.b = p.b, a.c = p.c, a.z = p.z;
  a.a = p.a, a.d = p.d, a.dt_bias = p.dt_bias, a.initial_state = p.initial_state;
  a.y = out.y, a.y_reverse = out.y_reverse, a.final_state = out.final_state, a.states = out.states;
  a.seq = p.seq, a.dim = p.dim;
  a.b_step = p.b_layout.groups * p.state * floats;
  a.c_step = p.c_layout.groups * p.state * floats;
  a.b_group_channels = p.dim / p.b_layout.groups;
  a.c_group_channels = p.dim / p.c_layout.groups;
  a.span_channels = plan.span_channels;
  a.blocks_per_span = static_cast<int>(plan.blocks_per_span);
  a.blocks_per_batch = static_cast<int>(plan.blocks_per_batch());
  a.reverse = p.options.direction == Direction::reverse;
  a.dt_min = p.options.dt_min, a.dt_max = p.options.dt_max;
  return a;
}

KernelSpec matrix_kernel_spec(const ScanProblem& p, const ScanOutputs& out) {
  KernelSpec spec{"scan/matrix.cu",
                  "selective_scan_matrix",
                  {define("B_CONSTANT", p.b_layout.constant), define("C_CONSTANT", p.c_layout.constant)}};
  add_problem_defines(p, out.states != nullptr, &spec.defines);
  return spec;
}

struct Choice {
  KernelSpec spec;
  std::size_t shared = 0;
  ScanPlan plan;
};

Choice choose(const DeviceProperties& device, const ScanProblem& p, const ScanOutputs& out,
              const ScanTuning& tuning) {
  Choice c;
  if (tuning.whole != 0 && scans_short(p, device, vector_rows(p))) {
    c.plan = plan_short(p, device, tuning);
    c.spec = short_kernel_spec(p, c.plan, out.states != nullptr);
    c.shared = short_shared_bytes(p, c.plan);
    return c;
  }
  if (!p.full_matrix && !scans_sequentially(p)) {
    c.plan = plan_chunked(p, device, tuning);
    c.spec = chunked_kernel_spec(p, c.plan, out, vector_rows(p));
    c.shared = chunked_shared_bytes(p, c.plan);
    return c;
  }
  if (tuning.wide != 0 && scans_wide(p, out, vector_rows(p))) {
    c.plan = plan_wide(p, device, tuning);
    c.spec = wide_kernel_spec(p, c.plan, out.states != nullptr);
    c.shared = wide_shared_bytes(p, c.plan);
    return c;
  }
  if (p.full_matrix) {
    c.spec = matrix_kernel_spec(p, out);
    c.plan.groups = 4;  // a warp a channel
    c.plan.span_channels = p.dim;
    c.plan.blocks_per_span = (p.dim + c.plan.groups - 1) / c.plan.groups;
    return c;
  }
  c.plan = plan_scan(p, device, tuning);
  c.spec = scan_kernel_spec(p, c.plan, vector_rows(p), out.states != nullptr);
  c.shared = static_cast<std::size_t>(scan_layout(p, c.plan).bytes());
  return c;
}

}  // namespace

std::vector<ScanLaunch> scan_launches(const DeviceProperties& device, const ScanProblem& p,
                                      const ScanOutputs& out, const ScanTuning& tuning) {
  std::vector<ScanLaunch> launches;
  if (p.batch == 0 || p.dim == 0) return launches;
  const Choice c = choose(device, p, out, tuning);
  const std::int64_t most =
      std::max<std::int64_t>(1, kMostBlocks / (c.plan.blocks_per_batch() * c.plan.split));
  for (std::int64_t begin = 0; begin < p.batch; begin += most) {
    const ScanProblem slice = slice_batch(p, begin, std::min(most, p.batch - begin));
    ScanLaunch l;
    l.spec = c.spec;
    l.grid_x = static_cast<unsigned>(slice.batch * c.plan.blocks_per_batch() * c.plan.split);
    l.grid_y = p.options.direction == Direction::both ? 2 : 1;
    l.block_y = static_cast<unsigned>(c.plan.groups * c.plan.parts),
    l.block_z = static_cast<unsigned>(c.plan.times);
    l.shared_bytes = c.shared;
    l.arguments = arguments(slice, slice_batch(p, out, begin), c.plan);
    launches.push_back(std::move(l));
  }
  return launches;
}

void launch_scan(Context& context, CUstream stream, const ScanProblem& p, const ScanOutputs& out,
                 const ScanTuning& tuning) {
  for (const ScanLaunch& l : scan_launches(context.properties(), p, out, tuning)) {
    launch(context, context.kernels().get(l.spec, l.shared_bytes), {l.grid_x, l.grid_y, 1},
           {32, l.block_y, l.block_z}, l.shared_bytes, stream, l.arguments);
  }
}

}  // namespace exphil::cuda
