// Chooses the kernel, fills its arguments and launches it.
#include "cuda/scan/forward.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "core/error.hpp"
#include "cuda/jit/launch.hpp"
#include "cuda/scan/plan_cache.hpp"

namespace exphil::cuda {
namespace {

using core::ScanShape;
using DeviceOperands = core::ScanOperands<CUdeviceptr>;

bool is_empty(const ScanShape& p) {
  return p.batch == 0 || p.dim == 0;
}

struct Planned {
  LaunchPlan plan;
  CUfunction function;
};

Planned make_planned(Context& context, const ScanShape& p, const ScanTuning* tuning) {
  Planned planned{plan_scan(p, context.properties(), tuning), nullptr};
  planned.function = context.kernels().get(planned.plan.spec, planned.plan.shared_bytes);
  return planned;
}

std::shared_ptr<const Planned> planned_scan(Context& context, const ScanShape& p, const ScanTuning* tuning) {
  // Leaked on purpose: threads may still call while static destructors run at the end of the process.
  static auto* const plans = new PlanCache<Planned>;
  if (tuning != nullptr) return std::make_shared<const Planned>(make_planned(context, p, tuning));
  return plans->get(context, p, [&] { return make_planned(context, p, nullptr); });
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
  const std::shared_ptr<const Planned> planned = planned_scan(context, p, tuning);
  const LaunchPlan& plan = planned->plan;
  for (const ScanLaunch& l : scan_launches(plan, p, on_device)) {
    launch(context, planned->function, l.grid, plan.block, plan.shared_bytes, stream, l.arguments);
  }
}

void prepare_scan(Context& context, const ScanShape& p, const ScanTuning* tuning) {
  if (!is_empty(p)) planned_scan(context, p, tuning);
}

}  // namespace exphil::cuda
