#include "cuda/policy/cell_walk.hpp"

#include <algorithm>

#include "cuda/jit/launch.hpp"
#include "cuda/policy/clusters.hpp"
#include "kernels/policy/cell_walk_layout.cuh"

namespace exphil::cuda {

KernelSpec cell_walk_kernel(const PolicyDims& dims, int cell, const walk::Shape& shape, bool counts,
                            bool pipelined) {
  std::vector<std::string> defines = dims.defines();
  counts = counts && shape.team > 1;  // st.async is defined in clusters of several blocks alone
  defines.insert(defines.end(), {define("CELL", cell), define("TEAM", shape.team), define("CLUSTER", 1),
                                 define("SEQUENCES", shape.most), define("COUNTS", counts ? 1 : 0),
                                 define("PIPELINED", pipelined ? 1 : 0)});
  return {"policy/cell_walk.cu", "policy_cell_walk", defines};
}

std::vector<walk::Shape> cell_walk_candidates(const DeviceProperties& device, const PolicyDims& dims,
                                              const PolicyTuning& tuning, int cell) {
  std::vector<walk::Shape> shapes;
  const policy::Network& n = dims.network();
  const policy::GatedCell& it = n.cells[cell];
  if (device.architecture() < 90 || n.states != policy::States::f32) return shapes;
  if (policy::recurrent_product(n, it) == policy::kNoPhase) return shapes;
  const auto append = [&](int team) {
    walk::Shape shape{it.cell, n.size(it.before), team};
    if (n.on_tensor_cores()) shape.tensor = true, shape.most = walk::kMostTensorSequences;
    shape.team = policy::divide_up(shape.units, shape.own());  // each of which has units
    const auto fits = [&] { return shape.shared_bytes(n.weight_bytes()) <= device.max_shared_per_block; };
    while (shape.most > 1 && !fits()) shape.most /= 2;
    if (shape.good() && fits()) shapes.push_back(shape);
  };
  if (tuning.walk_team > 0) append(tuning.walk_team);
  for (const int team : {2 * kPortableCluster, kPortableCluster}) {
    if (tuning.walk_team < 0) append(team);
  }
  return shapes;
}

std::optional<CellWalk> CellWalk::find(Context& context, const PolicyDims& dims, const PolicyTuning& tuning,
                                       int cell, bool pipelined) {
  for (const walk::Shape& shape : cell_walk_candidates(context.properties(), dims, tuning, cell)) {
    CellWalk made;
    made.shape_ = shape;
    made.product_ = policy::recurrent_product(dims.network(), dims.network().cells[cell]);
    made.shared_bytes_ = static_cast<unsigned>(shape.shared_bytes(dims.network().weight_bytes()));
    made.function_ = context.kernels().get(cell_walk_kernel(dims, cell, shape, tuning.counts != 0, pipelined),
                                           made.shared_bytes_);
    if (!allow_cluster(made.function_, shape.team)) continue;
    made.clusters_ = cluster_capacity(made.function_, shape.team, shape.threads(), made.shared_bytes_);
    if (made.clusters_ > 0) return made;
  }
  return std::nullopt;
}

CellWalk::Split CellWalk::split(int sequences, int share) const {
  const int most = std::max(1, clusters_ / share);
  const int together = std::min(policy::divide_up(sequences, most), shape_.sequences());
  return {std::min(most, policy::divide_up(sequences, together)), together};
}

void CellWalk::enqueue(Context& context, CUstream stream, policy::CellWalkArguments arguments,
                       const Split& split) const {
  arguments.together = split.together;
  launch_overlapped(context, function_, {static_cast<unsigned>(split.clusters * shape_.team)},
                    {static_cast<unsigned>(shape_.threads())}, shared_bytes_, stream, arguments);
}

}  // namespace exphil::cuda
