// The gradient of r of a dense recurrent operator: the sum over all frames of the state before the frame
// times the gradients of the sums. Each weight is added up by one thread in the order of the rows, so that
// the bits depend on nothing else. Compiled with -D: ELEMENT (the type of r).
#include "kernels/common/device_math.cuh"
#include "kernels/recurrent/dense_arguments.cuh"

namespace exphil {
namespace recurrent {

constexpr int kEach = kWeightTile * kRowTile / kWeightThreads;

struct Tiles {
  float before[kRowTile][kWeightTile], d_sums[kRowTile][kWeightTile];
};

// Values [first, first + kWeightTile) of rows [row, row + kRowTile) of a {rows, width} matrix.
__device__ __forceinline__ void fetch(const float* from, long long rows, int width, long long row, int first,
                                      float (&to)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kWeightThreads;
    const long long r = row + at / kWeightTile;
    const int column = first + at % kWeightTile;
    to[i] = r < rows && column < width ? from[r * width + column] : 0.0f;
  }
}
__device__ __forceinline__ void keep(float (&to)[kRowTile][kWeightTile], const float (&from)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kWeightThreads;
    to[at / kWeightTile][at % kWeightTile] = from[i];
  }
}

}  // namespace recurrent
}  // namespace exphil

using namespace exphil::recurrent;

// grid: x the tiles of sums, y those of the state.
extern "C" __global__ void __launch_bounds__(kWeightThreads) recurrent_weights(const WeightArguments args) {
  __shared__ Tiles tiles;
  const int first_sum = static_cast<int>(blockIdx.x) * kWeightTile;
  const int first_value = static_cast<int>(blockIdx.y) * kWeightTile;
  const int value = static_cast<int>(threadIdx.x) / 16 * 4, sum = static_cast<int>(threadIdx.x) % 16 * 4;
  float before[kEach], d_sums[kEach], total[4][4] = {};
  fetch(args.before, args.rows, args.hidden, 0, first_value, before);
  fetch(args.d_sums, args.rows, args.sums, 0, first_sum, d_sums);
  for (long long row = 0; row < args.rows; row += kRowTile) {
    __syncthreads();
    keep(tiles.before, before), keep(tiles.d_sums, d_sums);
    __syncthreads();
    fetch(args.before, args.rows, args.hidden, row + kRowTile, first_value, before);
    fetch(args.d_sums, args.rows, args.sums, row + kRowTile, first_sum, d_sums);
#pragma unroll
    for (int r = 0; r < kRowTile; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          total[i][j] = __fmaf_rn(tiles.before[r][value + i], tiles.d_sums[r][sum + j], total[i][j]);
        }
      }
    }
  }
  using Stored = typename exphil::device::StorageOf<ELEMENT>::Type;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int v = first_value + value + i, s = first_sum + sum + j;
      if (v >= args.hidden || s >= args.sums) continue;
      static_cast<Stored*>(args.weights)[static_cast<long long>(v) * args.sums + s] =
          exphil::device::narrow<ELEMENT>(total[i][j]);
    }
  }
}
