// The network that a kernel is compiled for, as a constant (policy/network.cuh). Compiled with -D: NETWORK,
// its initializer.
#pragma once

#include "kernels/policy/layout.cuh"

// Below compute capability 9.0 there are no clusters, and c_src/cuda/policy/team.cpp does not use them; such
// a variant still compiles, without clusters.
#if defined(CLUSTER) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#undef CLUSTER
#undef STAGED
#define CLUSTER 0
#define STAGED 0
#endif

// What a kernel declares whose teams of TEAM blocks are clusters.
#if defined(CLUSTER) && CLUSTER
#define TEAM_SHAPE __cluster_dims__(TEAM, 1, 1)
#else
#define TEAM_SHAPE
#endif

namespace exphil {
namespace policy {

constexpr Network kNetwork = NETWORK;

constexpr int size_of(int vector) {
  return kNetwork.size(vector);
}
constexpr int values_of(int vector) {
  return kNetwork.values(vector);
}

}  // namespace policy
}  // namespace exphil
