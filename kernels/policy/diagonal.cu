// A norm of every row, with its weight and bias, that no other product follows: a warp for each row. Launched
// by c_src/cuda/policy/rows_walk.cpp. Compiled with the network and -D: PRODUCT, its index.
#include "kernels/policy/product.cuh"

using namespace exphil::policy;

// grid: ceil(rows / kScaledRows).
extern "C" __global__ void __launch_bounds__(kRowThreads) policy_diagonal(const ProductArguments args) {
  using It = PhaseProduct<PRODUCT>;
  begin_launch_after();
  await_launch_before();
  const long long row = static_cast<long long>(blockIdx.x) * kScaledRows + threadIdx.x / 32;
  if (row >= args.rows) return;
  const float* const in = args.x + row * args.x_stride;
  const NormFactors norm = row_factors<It>(in, args);
  for (int i = static_cast<int>(threadIdx.x) % 32; i < It::kOutputs; i += 32) {
    args.out[row * args.out_stride + i] =
        diagonal(in[i], norm, __ldg(args.row_sums + i), __ldg(args.bias + i));
  }
}
