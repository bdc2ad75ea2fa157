// A matrix product of the policy over many rows, in the shapes of policy/product.cuh. Launched by
// c_src/cuda/policy/rows_walk.cpp. Compiled with the network and -D: PRODUCT, its index. Several modules
// compile in parallel, faster than one module with all products.
#include "kernels/policy/product_many.cuh"
#include "kernels/policy/product_some.cuh"
#include "kernels/policy/product_tensor.cuh"

namespace exphil {
namespace policy {

using It = PhaseProduct<PRODUCT>;
constexpr ProductTile kFew = few_tile(kNetwork, It::kK), kSome = some_tile(kNetwork, It::kK),
                      kMany = many_tile(kNetwork);

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

template <class Tile>
__device__ __forceinline__ void run_tile(const ProductArguments& args) {
  __shared__ typename Tile::Shared shared;
  Tile(args, shared).run();
}

template <class Of>
__device__ __forceinline__ void few(const ProductArguments& args) {
  if constexpr (kNetwork.on_tensor_cores()) {
    run_tile<TensorProduct<Of::kK, Of::kOutputs, Of, kFew.rows / 8, kFew.threads / 32, true>>(args);
  } else {
    product_few<Of::kK, Of::kOutputs, Of>(args);
  }
}
template <class Of>
__device__ __forceinline__ void some(const ProductArguments& args) {
  if constexpr (kNetwork.on_tensor_cores()) {
    run_tile<TensorProduct<Of::kK, Of::kOutputs, Of, kSome.rows / 8, kSome.threads / 32, false>>(args);
  } else {
    run_tile<SomeProduct<Of::kK, Of::kOutputs, Of>>(args);
  }
}
template <class Of>
__device__ __forceinline__ void many(const ProductArguments& args) {
  if constexpr (kNetwork.on_tensor_cores()) {
    run_tile<ManyTensorProduct<Of::kK, Of::kOutputs, Of>>(args);
  } else {
    run_tile<ManyProduct<Of::kK, Of::kOutputs, Of>>(args);
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

// Grids: {ceil(outputs / the tile's columns), ceil(rows / the tile's rows)}.
extern "C" __global__ void __launch_bounds__(kFew.threads) policy_product_few(const ProductArguments args) {
  few<It>(args);
}
extern "C" __global__ void __launch_bounds__(kSome.threads, 512 / kSome.threads)
    policy_product_some(const ProductArguments args) {
  some<It>(args);
}
extern "C" __global__ void __launch_bounds__(kMany.threads, 256 / kMany.threads)
    policy_product_many(const ProductArguments args) {
  many<It>(args);
}
