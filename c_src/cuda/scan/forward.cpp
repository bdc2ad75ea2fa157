// Chooses the kernel, fills its arguments and launches it.
#include "cuda/scan/forward.hpp"

#include <algorithm>
#include <cstdint>

#include "core/error.hpp"
#include "cuda/jit/launch.hpp"

namespace exphil::cuda {
namespace {

using core::ScanShape;
using DeviceOperands = core::ScanOperands<CUdeviceptr>;

bool is_empty(const ScanShape& p) {
  return p.batch == 0 || p.dim == 0;
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
                        scan_arguments(p, core::slice_batch(strides, on_device, begin), plan.cut)});
  }
  return launches;
}

void enqueue_scan(Context& context, CUstream stream, const ScanShape& p, const DeviceOperands& on_device,
                  const ScanTuning* tuning) {
  if (is_empty(p)) return;
  require_addresses(p, on_device);
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
