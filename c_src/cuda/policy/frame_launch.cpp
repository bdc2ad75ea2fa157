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

// Of tiles that spread, those whose frames come first have more agents: the frames of a tile come some 0.5 us
// behind those of the one before, and a row of a tile takes some 2. The first tile has half of the spread
// more than the mean.
FrameLaunch::Split FrameLaunch::split(std::int64_t rows) const {
  const std::int64_t tiles = std::min(rows, clusters_), room = 2 * (tiles * shape_.rows - rows) / tiles,
                     spread = shape_.spreads ? std::min(rows / tiles / 4, room) : 0,
                     tile = divide_up(2 * rows + spread * tiles, 2 * tiles),
                     chunks = divide_up(tile, shape_.chunk);
  return {rows, tiles, spread, tile, chunks, divide_up(tile, chunks)};
}

}  // namespace exphil::cuda
