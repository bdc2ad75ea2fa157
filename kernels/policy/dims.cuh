// The network that a kernel is compiled for, as a constant (policy/network.cuh). Compiled with -D: NETWORK,
// its initializer.
#pragma once

#include "kernels/common/cluster.cuh"
#include "kernels/policy/layout.cuh"

// As common/cluster.cuh has it of CLUSTER.
#if defined(STAGED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#undef STAGED
#define STAGED 0
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
