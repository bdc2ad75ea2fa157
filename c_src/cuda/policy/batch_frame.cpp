#include "cuda/policy/batch_frame.hpp"

#include <limits>

namespace exphil::cuda {

KernelSpec batch_frame_kernel(const PolicyDims& dims, int cell, const policy::FrameShape& shape) {
  std::vector<std::string> defines = dims.defines();
  defines.insert(defines.end(),
                 {define("CELL", cell), define("ROWS", shape.rows), define("CHUNK", shape.chunk),
                  define("TEAM", shape.team), define("CLUSTER", 1)});
  return {"policy/batch_frame.cu", "policy_batch_frame", defines};
}

std::optional<policy::FrameShape> batch_frame_shape(const DeviceProperties& device, const PolicyDims& dims,
                                                    const PolicyTuning& tuning, int cell) {
  if (device.architecture() < 90 || tuning.batch_frame == 0) return std::nullopt;
  for (const int rows : {80, 64, 48, 32, 16}) {
    for (const int chunk : {24, 16, 8}) {
      const policy::FrameShape shape = policy::frame_shape(dims.network(), cell, rows, chunk);
      if (shape.team > 0 && shape.shared <= device.max_shared_per_block) return shape;
    }
  }
  return std::nullopt;
}

std::optional<FrameLaunch> find_batch_frame(Context& context, const PolicyDims& dims,
                                            const PolicyTuning& tuning, int cell) {
  const auto shape = batch_frame_shape(context.properties(), dims, tuning, cell);
  if (!shape) return std::nullopt;
  // What is not known it makes before the frames are there: of few agents that takes longer than launches for
  // each layer, of many it is not done in time (bench/results/gated.md).
  constexpr FrameLaunch::Range kFaster{96, 640, std::numeric_limits<std::int64_t>::max()};
  return FrameLaunch::find(
      context, batch_frame_kernel(dims, cell, *shape),
      {shape->team, shape->rows, shape->chunk, shape->threads(), shape->shared, shape->outputs > 0, false},
      kFaster);
}

}  // namespace exphil::cuda
