// Clusters of blocks, of which a policy's teams consist (compute capability 9.0 and later). Used by
// cuda/policy/team.cpp and window.cpp; safe from any thread.
#pragma once

#include <cuda.h>

namespace exphil::cuda {

// The largest cluster that every device takes that has any.
inline constexpr int kPortableCluster = 8;

// Lets a kernel have clusters beyond that size. False where the device refuses.
bool allow_cluster(CUfunction function, int blocks);
// The clusters of so many blocks that fit on the device together; 0 where none fits.
int cluster_capacity(CUfunction function, int blocks, int threads, unsigned shared_bytes);

}  // namespace exphil::cuda
