// A matrix product of the policy over many rows, in the shapes of policy/product.cuh. Launched by
// c_src/cuda/policy/rows_walk.cpp. Compiled with the network and -D: PRODUCT, its index. Several modules
// compile in parallel, faster than one module with all products.
#include "kernels/policy/product_many.cuh"
#include "kernels/policy/product_some.cuh"

namespace exphil {
namespace policy {

using It = PhaseProduct<PRODUCT>;

// A warp per row.
template <class Of>
__device__ __forceinline__ void row_scales(const ProductArguments& args) {
  begin_launch_after();
  await_launch_before();
  if constexpr (Of::kNormed) {
    const long long row = static_cast<long long>(blockIdx.x) * kScaledRows + threadIdx.x / 32;
    if (row >= args.rows) return;
    const NormFactors norm = row_factors<Of>(args.x + row * args.x_stride, args);
    if (threadIdx.x % 32 != 0) return;
    args.scale[row] = norm.scale;
    if constexpr (Of::kCentres) args.scale[args.rows + row] = norm.mean;
  }
}

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// scale[row] = the norm's factor for row `row` of X, scale[rows + row] its mean where the product centres.
// grid: ceil(rows / kScaledRows).
extern "C" __global__ void __launch_bounds__(kRowThreads) policy_row_scales(const ProductArguments args) {
  row_scales<It>(args);
}

// grid {ceil(outputs / kFewColumns), ceil(rows / few_rows(K))}, few_threads(K).
extern "C" __global__ void __launch_bounds__(few_threads(It::kK))
    policy_product_few(const ProductArguments args) {
  product_few<It::kK, It::kOutputs, It>(args);
}

// grid {ceil(outputs / kSomeColumns), ceil(rows / kSomeRows)}, kSomeThreads.
extern "C" __global__ void __launch_bounds__(kSomeThreads, 4)
    policy_product_some(const ProductArguments args) {
  __shared__ SomeSlice slices[kSomeThreads / 32];
  SomeProduct<It::kK, It::kOutputs, It>(args, slices).run();
}

// grid {ceil(outputs / kManyColumns), ceil(rows / kManyRows)}, kManyThreads.
extern "C" __global__ void __launch_bounds__(kManyThreads, 2)
    policy_product_many(const ProductArguments args) {
  __shared__ __align__(16) ManyTiles tiles;
  ManyProduct<It::kK, It::kOutputs, It>(args, tiles).run();
}
