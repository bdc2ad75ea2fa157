// A matrix product of the policy over many rows by warpgroups (policy/product_wide.cuh). Launched by
// c_src/cuda/policy/rows_walk.cpp. Compiled with the network and -D: PRODUCT, its index.
#include "kernels/policy/product_wide.cuh"

namespace exphil {
namespace policy {

using It = PhaseProduct<PRODUCT>;

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// grid: {ceil(outputs / wide_columns(k)), blocks that share the rows}; threads: of one warpgroup to
// wide_threads().
extern "C" __global__ void __launch_bounds__(wide_threads(wide_columns(It::kK)), 1)
    policy_product_wide(const ProductArguments args) {
#if EXPHIL_WARPGROUPS
  using Wide = WideProduct<It::kK, It::kOutputs, It>;
  Wide(args, *reinterpret_cast<Wide::Matrix*>(dynamic_shared())).run();
#else
  (void)args;  // not launched there
#endif
}
