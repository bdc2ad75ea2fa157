// The product that begins a layer, of rows that the walk of the layer before it makes meanwhile
// (policy/cell_walk.cu): the second of three launches that run side by side. Its input and its results are
// words of policy/tagged.cuh, so the three wait for no more than the values that they read. Compiled with the
// network and -D: PRODUCT, its index; UNITS, the values of a row that the walk makes.
//
// No launch waits for one that has not begun: each begins when all blocks of the one before it run
// (griddepcontrol.launch_dependents), and a device that knows no such launches runs them one after another.
// Launched by c_src/cuda/policy/layer_pipeline.cpp.
#include "kernels/policy/product.cuh"
#include "kernels/policy/tagged.cuh"

namespace exphil {
namespace policy {

using It = PhaseProduct<PRODUCT>;
constexpr int kThreads = few_threads(It::kK);

// The rows of a walk's cluster in the order in which it makes them: frame by frame, of each frame one row
// after another.
class FollowedRows {
 public:
  __device__ __forceinline__ FollowedRows(const FollowArguments& args, int cluster)
      : args_(args), first_(static_cast<long long>(cluster) * args.together) {
    const long long left = args.sequences - first_;
    count_ = left < args.together ? static_cast<int>(left) : args.together;
  }
  __device__ __forceinline__ long long count() const { return static_cast<long long>(count_) * args_.seq; }
  __device__ __forceinline__ long long row(long long i) const {
    return (first_ + i % count_) * args_.seq + i / count_;
  }

 private:
  const FollowArguments& args_;
  const long long first_;
  int count_;
};

// Row by row, as they come: a thread has some values of each.
__device__ __forceinline__ void await_rows(const FollowArguments& args, const FollowedRows& rows,
                                           long long first, float (&to)[kFollowedRows][It::kK]) {
  constexpr int kEach = divide_up(It::kK, kThreads);
  const int thread = static_cast<int>(threadIdx.x);
  const Tagged* from[kFollowedRows];
  Tagged words[kFollowedRows][kEach];
#pragma unroll
  for (int r = 0; r < kFollowedRows; ++r) {
    from[r] = first + r < rows.count() ? args.in + rows.row(first + r) * UNITS : nullptr;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int k = thread + j * kThreads;
      if (from[r] != nullptr && k < UNITS) words[r][j] = load_system(from[r] + k);
    }
  }
#pragma unroll
  for (int r = 0; r < kFollowedRows; ++r) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int k = thread + j * kThreads;
      float value = 0.0f;
      if (from[r] != nullptr && k < UNITS) {
        await_number(from[r] + k, args.number, &words[r][j]);
        value = value_of(words[r][j]);
      }
      if (k < It::kK) to[r][k] = value;
    }
  }
}

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// grid {ceil(outputs / kFewColumns), clusters of the walk, blocks that share a cluster's rows},
// few_threads(K).
extern "C" __global__ void __launch_bounds__(kThreads) policy_product_follow(const FollowArguments args) {
  __shared__ FewTile<It::kK, kFollowedRows> tile;
  begin_launch_after();
  const FollowedRows rows(args, static_cast<int>(blockIdx.y));
  ProductArguments p{};
  static_cast<ProductMatrix&>(p) = args;
  p.rows = rows.count(), p.epsilon = args.epsilon;
  for (long long i = blockIdx.z; i * kFollowedRows < p.rows; i += gridDim.z) {
    product_few_tile<It::kK, It::kOutputs, It, kFollowedRows, kThreads>(
        p, tile, static_cast<int>(blockIdx.x), i,
        [&](auto& xs) { await_rows(args, rows, i * kFollowedRows, xs); },
        [&](long long at, int column, float value) {
          store_tagged(args.out + rows.row(at) * It::kOutputs + column, args.number, value);
        });
  }
  await_launch_before();  // who waits for the end of this launch waits for that of the walk as well
}
