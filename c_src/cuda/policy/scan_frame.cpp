#include "cuda/policy/scan_frame.hpp"

#include <cstdint>
#include <limits>

namespace exphil::cuda {

KernelSpec scan_frame_kernel(const PolicyDims& dims, const policy::ScanFrameShape& shape) {
  std::vector<std::string> defines = dims.defines();
  defines.insert(defines.end(),
                 {define("ROWS", shape.rows), define("TEAM", shape.team), define("CLUSTER", 1)});
  return {"policy/scan_frame.cu", "policy_scan_frame", defines};
}

std::optional<policy::ScanFrameShape> scan_frame_shape(const DeviceProperties& device, const PolicyDims& dims,
                                                       const PolicyTuning& tuning) {
  if (device.architecture() < 90 || tuning.batch_frame == 0) return std::nullopt;
  // Of fewer agents a block would read its weights for too few, and launches for each phase are faster.
  for (const int rows : {22, 20, 19, 18, 16, 14, 12}) {
    const policy::ScanFrameShape shape = policy::scan_frame_shape(dims.network(), rows);
    if (shape.team > 0 && shape.shared <= device.max_shared_per_block) return shape;
  }
  return std::nullopt;
}

std::optional<FrameLaunch> find_scan_frame(Context& context, const PolicyDims& dims,
                                           const PolicyTuning& tuning) {
  const auto shape = scan_frame_shape(context.properties(), dims, tuning);
  if (!shape) return std::nullopt;
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  return FrameLaunch::find(context, scan_frame_kernel(dims, *shape),
                           {shape->team, shape->rows, shape->rows, policy::kScanFrameThreads, shape->shared,
                            shape->outputs > 0, true},
                           {1, kAny, kAny});
}

}  // namespace exphil::cuda
