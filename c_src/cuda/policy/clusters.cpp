#include "cuda/policy/clusters.hpp"

#include "cuda/device/driver.hpp"

namespace exphil::cuda {

bool allow_cluster(CUfunction function, int blocks) {
  return blocks <= kPortableCluster ||
         driver().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1) ==
             CUDA_SUCCESS;
}

int cluster_capacity(CUfunction function, int blocks, int threads, unsigned shared_bytes) {
  if (driver().cuOccupancyMaxActiveClusters == nullptr) return blocks > kPortableCluster ? 0 : 1;
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim.x = static_cast<unsigned>(blocks);
  attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(blocks);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(threads);
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  return driver().cuOccupancyMaxActiveClusters(&clusters, function, &config) == CUDA_SUCCESS ? clusters : 0;
}

}  // namespace exphil::cuda
