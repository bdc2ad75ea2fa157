#include "cuda/policy/clusters.hpp"

#include "cuda/device/driver.hpp"

namespace exphil::cuda {

AttributedLaunch::AttributedLaunch(CUlaunchAttributeID id, unsigned blocks, int threads,
                                   unsigned shared_bytes, CUstream stream) {
  attribute.id = id;
  config.gridDimX = blocks, config.blockDimX = static_cast<unsigned>(threads);
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = shared_bytes;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
}

bool allow_cluster(CUfunction function, int blocks) {
  return blocks <= kPortableCluster ||
         driver().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1) ==
             CUDA_SUCCESS;
}

int cluster_capacity(CUfunction function, int blocks, int threads, unsigned shared_bytes) {
  if (driver().cuOccupancyMaxActiveClusters == nullptr) return blocks > kPortableCluster ? 0 : 1;
  AttributedLaunch launch(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, static_cast<unsigned>(blocks), threads,
                          shared_bytes, nullptr);
  launch.attribute.value.clusterDim.x = static_cast<unsigned>(blocks);
  launch.attribute.value.clusterDim.y = launch.attribute.value.clusterDim.z = 1;
  int clusters = 0;
  const CUresult result = driver().cuOccupancyMaxActiveClusters(&clusters, function, &launch.config);
  return result == CUDA_SUCCESS ? clusters : 0;
}

}  // namespace exphil::cuda
