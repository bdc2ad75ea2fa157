#include "cuda/policy/frame_launch.hpp"

#include <algorithm>

#include "cuda/divide_up.hpp"
#include "cuda/policy/clusters.hpp"

namespace exphil::cuda {

std::optional<FrameLaunch> FrameLaunch::find(Context& context, const KernelSpec& kernel, const Shape& shape,
                                             Range range) {
  FrameLaunch made;
  const auto shared = static_cast<unsigned>(shape.shared);
  made.shape_ = shape;
  made.function_ = context.kernels().get(kernel, shared);
  if (!allow_cluster(made.function_, shape.team)) return std::nullopt;
  made.clusters_ = cluster_capacity(made.function_, shape.team, shape.threads, shared);
  if (made.clusters_ == 0) return std::nullopt;
  made.range_ = range;
  made.range_.most_known = std::min(range.most_known, made.clusters_ * shape.rows);
  return made;
}

FrameLaunch::Split FrameLaunch::split(std::int64_t rows) const {
  const std::int64_t tile = divide_up(rows, clusters_), chunks = divide_up(tile, shape_.chunk);
  return {divide_up(rows, tile), tile, chunks, divide_up(tile, chunks)};
}

}  // namespace exphil::cuda
