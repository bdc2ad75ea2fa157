#include "cuda/policy/batch_frame.hpp"

#include "cuda/divide_up.hpp"
#include "cuda/jit/launch.hpp"
#include "cuda/policy/clusters.hpp"

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

std::optional<BatchFrame> BatchFrame::find(Context& context, const PolicyDims& dims,
                                           const PolicyTuning& tuning, int cell) {
  const auto shape = batch_frame_shape(context.properties(), dims, tuning, cell);
  if (!shape) return std::nullopt;
  BatchFrame made;
  const auto shared = static_cast<unsigned>(shape->shared);
  made.shape_ = *shape;
  made.function_ = context.kernels().get(batch_frame_kernel(dims, cell, *shape), shared);
  if (!allow_cluster(made.function_, shape->team)) return std::nullopt;
  made.clusters_ = cluster_capacity(made.function_, shape->team, shape->threads(), shared);
  if (made.clusters_ == 0) return std::nullopt;
  return made;
}

// What is not known it makes before the frames are there: of few agents that takes longer than launches for
// each layer, of many it is not done in time (bench/results/gated.md).
bool BatchFrame::takes(std::int64_t rows, bool known) const {
  constexpr std::int64_t kLeastUnknown = 96, kMostUnknown = 640;
  return rows <= clusters_ * shape_.rows && (known || (rows >= kLeastUnknown && rows <= kMostUnknown));
}

BatchFrame::Split BatchFrame::split(std::int64_t rows) const {
  const std::int64_t tile = divide_up(rows, clusters_), chunks = divide_up(tile, shape_.chunk);
  return {divide_up(rows, tile), tile, chunks, divide_up(tile, chunks)};
}

void BatchFrame::enqueue(Context& context, CUstream stream, policy::FrameArguments a) const {
  const Split split = this->split(a.rows);
  a.tile_rows = static_cast<int>(split.tile_rows), a.chunk_rows = static_cast<int>(split.chunk_rows);
  launch(context, function_, {static_cast<unsigned>(split.tiles * shape_.team)},
         {static_cast<unsigned>(shape_.threads())}, static_cast<std::size_t>(shape_.shared), stream, a);
}

}  // namespace exphil::cuda
