// Clusters of blocks, of which a policy's teams consist (compute capability 9.0 and later), and launches with
// an attribute. Used by cuda/policy/team.cpp and window.cpp; safe from any thread.
#pragma once

#include <cuda.h>

namespace exphil::cuda {

// The largest cluster that every device takes that has any.
inline constexpr int kPortableCluster = 8;

// A launch of blocks in one dimension with one attribute, for the driver's calls that take a configuration.
// The caller sets the attribute's value.
struct AttributedLaunch {
  AttributedLaunch(CUlaunchAttributeID id, unsigned blocks, int threads, unsigned shared_bytes,
                   CUstream stream);
  AttributedLaunch(const AttributedLaunch&) = delete;
  AttributedLaunch& operator=(const AttributedLaunch&) = delete;

  CUlaunchAttribute attribute{};
  CUlaunchConfig config{};
};

// Lets a kernel have clusters beyond that size. False where the device refuses.
bool allow_cluster(CUfunction function, int blocks);
// The clusters of so many blocks that fit on the device together; 0 where none fits.
int cluster_capacity(CUfunction function, int blocks, int threads, unsigned shared_bytes);

}  // namespace exphil::cuda
