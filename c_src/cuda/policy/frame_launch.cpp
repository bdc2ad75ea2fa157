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

// The frames of a tile come some 0.5 us behind those of the one before, and a row of a tile takes some 2.
FrameLaunch::Split FrameLaunch::split(std::int64_t rows) const {
  Split made{rows, std::min(rows, clusters_), 0, 0, 0, 0};
  const auto largest = [&] {
    std::int64_t most = 0;
    for (std::int64_t tile = 0; tile < made.tiles; ++tile) {
      most = std::max(most, made.first(tile + 1) - made.first(tile));
    }
    return most;
  };
  if (shape_.spreads) made.spread = rows / made.tiles / 4;
  while (made.spread > 0 && largest() > shape_.rows) --made.spread;
  made.tile_rows = largest();
  made.chunks = divide_up(made.tile_rows, shape_.chunk);
  made.chunk_rows = divide_up(made.tile_rows, made.chunks);
  return made;
}

}  // namespace exphil::cuda
