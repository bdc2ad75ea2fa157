// Chooses the kernel, fills its arguments and launches it.
#include "cuda/scan/forward.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/error.hpp"
#include "cuda/jit/launch.hpp"

namespace exphil::cuda {
namespace {

using core::Direction;
using core::Operand;
using core::ScanOperand;
using core::ScanShape;
using DeviceOperands = core::ScanOperands<CUdeviceptr>;

// The offset of each operand's address in scan::Arguments.
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

scan::Arguments arguments(const ScanShape& p, const DeviceOperands& on_device, const ChannelCut& cut) {
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
  a.span_channels = cut.span_channels;
  a.blocks_per_span = static_cast<int>(cut.blocks_per_span);
  a.blocks_per_batch = static_cast<int>(cut.blocks());
  a.reverse = p.options.direction == Direction::reverse;
  a.dt_min = p.options.dt_min, a.dt_max = p.options.dt_max;
  return a;
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

LaunchPlan plan_scan(const ScanShape& p, const DeviceProperties& device, const ScanTuning* tuning) {
  for (const ScanKernel* kernel : kForward) {
    if (tuning != nullptr && tuning->kernel != kernel) continue;
    if (kernel->takes(p, device)) return kernel->plan(p, device, tuning);
  }
  core::fail(core::ErrorKind::unsupported, "", "no kernel ",
             tuning == nullptr ? "" : core::message("named ", tuning->kernel->name, " "),
             "supports this scan on this device");
}

std::vector<ScanLaunch> scan_launches(const LaunchPlan& plan, const ScanShape& p,
                                      const DeviceOperands& on_device) {
  std::vector<ScanLaunch> launches;
  if (is_empty(p)) return launches;
  const auto strides = core::sequence_strides(core::describe_operands(p));
  const std::int64_t most = std::max<std::int64_t>(1, kMostGridBlocks / plan.blocks_per_sequence());
  for (std::int64_t begin = 0; begin < p.batch; begin += most) {
    launches.push_back({plan.grid(std::min(most, p.batch - begin)),
                        arguments(p, core::slice_batch(strides, on_device, begin), plan.cut)});
  }
  return launches;
}

void enqueue_scan(Context& context, CUstream stream, const ScanShape& p, const DeviceOperands& on_device,
                  const ScanTuning* tuning) {
  if (is_empty(p)) return;
  require_addresses(core::describe_operands(p), p, on_device);
  const LaunchPlan plan = plan_scan(p, context.properties(), tuning);
  const CUfunction function = context.kernels().get(plan.spec, plan.shared_bytes);
  for (const ScanLaunch& l : scan_launches(plan, p, on_device)) {
    launch(context, function, l.grid, plan.block, plan.shared_bytes, stream, l.arguments);
  }
}

void prepare_scan(Context& context, const ScanShape& p, const ScanTuning* tuning) {
  if (is_empty(p)) return;
  const LaunchPlan plan = plan_scan(p, context.properties(), tuning);
  context.kernels().get(plan.spec, plan.shared_bytes);
}

}  // namespace exphil::cuda
