#include "cuda/policy/cell_walk_wide.hpp"

#include <algorithm>

#include "cuda/jit/kernel_compiler.hpp"
#include "cuda/jit/launch.hpp"
#include "cuda/policy/clusters.hpp"

namespace exphil::cuda {

KernelSpec cell_walk_wide_kernel(const PolicyDims& dims, int cell) {
  std::vector<std::string> defines = dims.defines();
  const int team = policy::wide_walk(dims.network(), dims.network().cells[cell]).team;
  defines.insert(defines.end(), {define("CELL", cell), define("TEAM", team), define("CLUSTER", 1)});
  return {"policy/cell_walk_wide.cu", "policy_cell_walk_wide", defines};
}

std::optional<CellWalkWide> CellWalkWide::find(Context& context, const PolicyDims& dims, int cell) {
  const policy::Network& n = dims.network();
  if (!compiles_warpgroups(context.properties().architecture())) return std::nullopt;
  CellWalkWide made;
  made.shape_ = policy::wide_walk(n, n.cells[cell]);
  if (made.shape_.team == 0) return std::nullopt;
  const auto shared = static_cast<unsigned>(made.shape_.shared);
  made.product_ = policy::recurrent_product(n, n.cells[cell]);
  made.function_ = context.kernels().get(cell_walk_wide_kernel(dims, cell), shared);
  if (!allow_cluster(made.function_, made.shape_.team)) return std::nullopt;
  made.clusters_ = cluster_capacity(made.function_, made.shape_.team, policy::kWideWalkThreads, shared);
  return made.clusters_ > 0 ? std::optional(made) : std::nullopt;
}

void CellWalkWide::enqueue(Context& context, CUstream stream,
                           const policy::CellWalkArguments& arguments) const {
  const int clusters = std::min(clusters_, policy::divide_up(arguments.sequences, policy::kWideRows));
  launch_overlapped(context, function_, {static_cast<unsigned>(clusters * shape_.team)},
                    {static_cast<unsigned>(policy::kWideWalkThreads)}, static_cast<unsigned>(shape_.shared),
                    stream, arguments);
}

}  // namespace exphil::cuda
