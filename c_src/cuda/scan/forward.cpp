// Chooses the kernel, fills its arguments and launches it.
#include "cuda/scan/forward.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/error.hpp"
#include "cuda/jit/launch.hpp"
#include "cuda/scan/chunked.hpp"
#include "cuda/scan/short.hpp"
#include "cuda/scan/wide.hpp"
#include "kernels/scan/arguments.cuh"

namespace exphil::cuda {
namespace {

using core::Direction;
using core::Operand;
using core::ScanOperand;
using core::ScanShape;
using DeviceOperands = core::ScanOperands<CUdeviceptr>;

// Where scan::Arguments keeps each operand's address.
core::PerOperand<ScanOperand, std::size_t> argument_offsets() {
  core::PerOperand<ScanOperand, std::size_t> offsets;
  offsets[ScanOperand::x] = offsetof(scan::Arguments, x);
  offsets[ScanOperand::dt] = offsetof(scan::Arguments, dt);
  offsets[ScanOperand::a] = offsetof(scan::Arguments, a);
  offsets[ScanOperand::b] = offsetof(scan::Arguments, b);
  offsets[ScanOperand::c] = offsetof(scan::Arguments, c);
  offsets[ScanOperand::d] = offsetof(scan::Arguments, d);
  offsets[ScanOperand::z] = offsetof(scan::Arguments, z);
  offsets[ScanOperand::dt_bias] = offsetof(scan::Arguments, dt_bias);
  offsets[ScanOperand::initial_state] = offsetof(scan::Arguments, initial_state);
  offsets[ScanOperand::y] = offsetof(scan::Arguments, y);
  offsets[ScanOperand::y_reverse] = offsetof(scan::Arguments, y_reverse);
  offsets[ScanOperand::final_state] = offsetof(scan::Arguments, final_state);
  offsets[ScanOperand::states] = offsetof(scan::Arguments, states);
  return offsets;
}

scan::Arguments arguments(const ScanShape& p, const DeviceOperands& on_device, const ScanPlan& plan) {
  static_assert(sizeof(CUdeviceptr) == sizeof(void*));
  static const core::PerOperand<ScanOperand, std::size_t> offsets = argument_offsets();
  const std::int64_t floats = p.complex ? 2 : 1;
  scan::Arguments a{};
  for (const ScanOperand id : core::all_operands<ScanOperand>()) {
    if (p.has(id)) std::memcpy(reinterpret_cast<char*>(&a) + offsets[id], &on_device[id], sizeof(void*));
  }
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

KernelSpec matrix_kernel_spec(const ScanShape& p) {
  KernelSpec spec{"scan/matrix.cu",
                  "selective_scan_matrix",
                  {define("B_CONSTANT", p.b_layout.constant), define("C_CONSTANT", p.c_layout.constant)}};
  add_problem_defines(p, &spec.defines);
  return spec;
}

struct Choice {
  KernelSpec spec;
  std::size_t shared = 0;
  ScanPlan plan;
};

Choice choose(const DeviceProperties& device, const ScanShape& p, const ScanTuning& tuning) {
  Choice c;
  if (tuning.whole != 0 && scans_short(p, device)) {
    c.plan = plan_short(p, device, tuning);
    c.spec = short_kernel_spec(p, c.plan);
    c.shared = short_shared_bytes(p, c.plan);
    return c;
  }
  if (!p.full_matrix && !scans_sequentially(p)) {
    c.plan = plan_chunked(p, device, tuning);
    c.spec = chunked_kernel_spec(p, c.plan);
    c.shared = chunked_shared_bytes(p, c.plan);
    return c;
  }
  if (tuning.wide != 0 && scans_wide(p)) {
    c.plan = plan_wide(p, device, tuning);
    c.spec = wide_kernel_spec(p, c.plan);
    c.shared = wide_shared_bytes(p, c.plan);
    return c;
  }
  if (p.full_matrix) {
    c.spec = matrix_kernel_spec(p);
    c.plan.groups = 4;  // a warp a channel
    c.plan.span_channels = p.dim;
    c.plan.blocks_per_span = (p.dim + c.plan.groups - 1) / c.plan.groups;
    return c;
  }
  c.plan = plan_scan(p, device, tuning);
  c.spec = scan_kernel_spec(p, c.plan);
  c.shared = static_cast<std::size_t>(scan_layout(p, c.plan).bytes());
  return c;
}

bool is_empty(const ScanShape& p) {
  return p.batch == 0 || p.dim == 0;
}

void require_addresses(const core::PerOperand<ScanOperand, Operand>& table, const ScanShape& p,
                       const DeviceOperands& on_device) {
  for (const ScanOperand id : core::all_operands<ScanOperand>()) {
    const Operand& operand = table[id];
    if (!operand.present || operand.bytes() == 0) continue;
    if (on_device[id] == 0 || core::alignment_of(on_device[id]) < p.alignment[id]) {
      core::fail(core::ErrorKind::invalid_argument, operand.name, operand.name,
                 " must be at a device address that is a multiple of ", static_cast<int>(p.alignment[id]),
                 "; got ", on_device[id]);
    }
  }
}

}  // namespace

std::vector<ScanLaunch> scan_launches(const DeviceProperties& device, const ScanShape& p,
                                      const DeviceOperands& on_device, const ScanTuning& tuning) {
  std::vector<ScanLaunch> launches;
  if (is_empty(p)) return launches;
  const Choice c = choose(device, p, tuning);
  const auto strides = core::sequence_strides(core::describe_operands(p));
  const std::int64_t most =
      std::max<std::int64_t>(1, kMostGridBlocks / (c.plan.blocks_per_batch() * c.plan.split));
  for (std::int64_t begin = 0; begin < p.batch; begin += most) {
    const std::int64_t count = std::min(most, p.batch - begin);
    ScanLaunch l;
    l.spec = c.spec;
    l.grid_x = static_cast<unsigned>(count * c.plan.blocks_per_batch() * c.plan.split);
    l.grid_y = p.options.direction == Direction::both ? 2 : 1;
    l.block_y = static_cast<unsigned>(c.plan.groups * c.plan.parts),
    l.block_z = static_cast<unsigned>(c.plan.times);
    l.shared_bytes = c.shared;
    l.arguments = arguments(p, core::slice_batch(strides, on_device, begin), c.plan);
    launches.push_back(std::move(l));
  }
  return launches;
}

void enqueue_scan(Context& context, CUstream stream, const ScanShape& p, const DeviceOperands& on_device,
                  const ScanTuning& tuning) {
  if (is_empty(p)) return;
  require_addresses(core::describe_operands(p), p, on_device);
  for (const ScanLaunch& l : scan_launches(context.properties(), p, on_device, tuning)) {
    launch(context, context.kernels().get(l.spec, l.shared_bytes), {l.grid_x, l.grid_y, 1},
           {32, l.block_y, l.block_z}, l.shared_bytes, stream, l.arguments);
  }
}

void prepare_scan(Context& context, const ScanShape& p, const ScanTuning& tuning) {
  if (is_empty(p)) return;
  const Choice c = choose(context.properties(), p, tuning);
  context.kernels().get(c.spec, c.shared);
}

}  // namespace exphil::cuda
