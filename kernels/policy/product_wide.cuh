// Products of many rows on tensor cores by warpgroups (common/warpgroup.cuh), for tf32x3: a block keeps the
// weights of its columns in shared memory, split, and each of its warpgroups takes 64 rows after another. The
// order of a sum is that of policy/product_tensor.cuh.
#pragma once

#include "kernels/common/device_memory.cuh"
#include "kernels/common/warpgroup.cuh"
#include "kernels/policy/product.cuh"
#include "kernels/policy/wide_layout.cuh"

#if EXPHIL_WARPGROUPS

namespace exphil {
namespace policy {

// kK x kColumns weights and what cutting them leaves, in groups of four slots of a column: of 16 k, group j
// has k = j, j + 4, j + 8 and j + 12, so that a lane reads four consecutive values of X (tensor_weight()).
template <int kK, int kColumns>
struct WideMatrix {
  float4 high[kK / 4][kColumns], low[kK / 4][kColumns];
};

// Copies the weights by all warps of the block, of which there are at most kWarps. kTogether (8 or 16)
// columns are consecutive in the matrix, of which first_of(i) is the first one, a multiple of kTogether. A
// barrier has to follow.
template <int kTogether, int kWarps, int kStride, int kK, int kColumns, class FirstOf>
__device__ __forceinline__ void stage_wide(WideMatrix<kK, kColumns>& to, const void* weights,
                                           FirstOf first_of) {
  constexpr int kParts = kColumns / kTogether, kAll = kK / 8 * kParts,
                kAhead = least(12, divide_up(kAll, kWarps));
  const int lane = static_cast<int>(threadIdx.x) % 32, warps = static_cast<int>(blockDim.x) / 32;
  const float4* const from = static_cast<const float4*>(weights) + lane;
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x) / 32; item < kAll; item += kAhead * warps) {
    float4 values[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = least(item + i * warps, kAll - 1), column = first_of(at % kParts);
      values[i] = __ldg(from + (2 * (at / kParts) + column / 16 % 2) * kStride + column / 32 * 32);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = least(item + i * warps, kAll - 1), first = first_of(at % kParts);
      const float of[4] = {values[i].x, values[i].y, values[i].z, values[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (kTogether == 8 && j % 2 != first / 8 % 2) continue;
        const int group = 2 * (at / kParts) + j / 2;
        const int column = at % kParts * kTogether + lane / 4 + (kTogether == 16 ? j % 2 * 8 : 0);
        unsigned high, low;
        device::split_tf32<0>(of[j], &high, &low);
        reinterpret_cast<float*>(&to.high[group][column])[lane % 4] = of[j];
        reinterpret_cast<float*>(&to.low[group][column])[lane % 4] = __uint_as_float(low);
      }
    }
  }
  device::publish_wide();
}

// Sums of a warp's 16 rows of the 64 of its warpgroup, by kColumns columns, of products side by side.
template <int kColumns>
struct WideSums {
  static constexpr int kTiles = wide_tiles(kColumns), kTileColumns = kColumns / kTiles,
                       kSums = kTileColumns / 2;
  // Of sum i of tile n: the row of the warp's, the column of all.
  __device__ __forceinline__ static int row_of(int i) {
    return device::wide_row(static_cast<int>(threadIdx.x) % 32, i);
  }
  __device__ __forceinline__ static int column_of(int n, int i) {
    return n * kTileColumns + device::wide_column(static_cast<int>(threadIdx.x) % 32, i);
  }

  float of[kTiles][kSums] = {};
};

// The halves of a segment of the lane's two rows.
__device__ __forceinline__ void load_wide(const float* first, const float* second, float4 (&values)[2][2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    values[half][0] = device::load_ahead(first + 16 * half);
    values[half][1] = device::load_ahead(second + 16 * half);
  }
}

// Adds the products of the rows and kColumns columns of the matrix, a segment after another. first, second:
// the lane's rows of X, numbers lane / 4 and lane / 4 + 8 of the warp's.
template <int kColumns, int kK, int kStride>
__device__ __forceinline__ void add_wide(const WideMatrix<kK, kStride>& matrix, int first_column,
                                         const float* first, const float* second, WideSums<kColumns>& total) {
  using Sums = WideSums<kColumns>;
  const device::WideWeights<kStride> high(&matrix.high[0][first_column]), low(&matrix.low[0][first_column]);
  const int at = static_cast<int>(threadIdx.x) % 4 * 4;
  float4 values[2][2];
  load_wide(first + at, second + at, values);
#pragma unroll 1
  for (int segment = 0; segment < kK / kSegment; ++segment) {
    const device::WideRows x[4] = {
        device::wide_rows(values[0][0].x, values[0][1].x, values[0][0].y, values[0][1].y),
        device::wide_rows(values[0][0].z, values[0][1].z, values[0][0].w, values[0][1].w),
        device::wide_rows(values[1][0].x, values[1][1].x, values[1][0].y, values[1][1].y),
        device::wide_rows(values[1][0].z, values[1][1].z, values[1][0].w, values[1][1].w)};
    const int next = least(segment + 1, kK / kSegment - 1) * kSegment + at;
    load_wide(first + next, second + next, values);
    float sums[Sums::kTiles][Sums::kSums];
    device::begin_segment_wide(x, high, low, segment * (kSegment / 4), sums);
    device::await_wide(sums);
#pragma unroll
    for (int n = 0; n < Sums::kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < Sums::kSums; ++i) total.of[n][i] = __fadd_rn(total.of[n][i], sums[n][i]);
    }
  }
}

// The first of a warp's 16 rows in the block's round of 64 rows for each warpgroup.
__device__ __forceinline__ long long wide_first_row(long long round) {
  const int warpgroups = static_cast<int>(blockDim.x) / device::kWarpgroup,
            warp = static_cast<int>(threadIdx.x) / 32;
  return (round * gridDim.y + blockIdx.y) * warpgroups * device::kWarpgroupRows + 16 * warp;
}

template <int kK, int kOutputs, class Epilogue>
class WideProduct {
 public:
  static constexpr int kColumns = wide_columns(kK);
  using Matrix = WideMatrix<kK, kColumns>;

  __device__ __forceinline__ WideProduct(const ProductArguments& args, Matrix& matrix)
      : args_(args), matrix_(matrix), first_column_(static_cast<int>(blockIdx.x) * kColumns) {}

  __device__ __forceinline__ void run() {
    begin_launch_after();
    stage_wide<16, wide_threads(kColumns) / 32, product_columns(kOutputs)>(
        matrix_, args_.weights, [&](int part) { return first_column_ + 16 * part; });
    for_each_pair([&](int pair, int n, int i, int column) __attribute__((always_inline)) {
      (void)n, (void)i;
      columns_[pair][0] = ProductColumn::of<Epilogue>(args_, column);
      columns_[pair][1] = ProductColumn::of<Epilogue>(args_, column + 1);
    });
    await_launch_before();
    __syncthreads();
#pragma unroll 1
    for (long long round = 0;; ++round) {
      const long long first = wide_first_row(round);
      if (first - first % device::kWarpgroupRows >= args_.rows) return;  // a whole warpgroup
      Sums sums;
      add_wide(matrix_, 0, x(first + Sums::row_of(0)), x(first + Sums::row_of(2)), sums);
      write(first, sums);
    }
  }

 private:
  using Sums = WideSums<kColumns>;

  // Rows beyond the last one have sums that nobody reads.
  __device__ __forceinline__ const float* x(long long row) const {
    return args_.x + (row < args_.rows ? row : args_.rows - 1) * args_.x_stride;
  }

  __device__ __forceinline__ void write(long long first, const Sums& sums) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // rows
      const long long row = first + Sums::row_of(2 * half);
      if (row >= args_.rows) continue;
      const NormFactors norm = found_factors<Epilogue>(args_, row);
      float residuals[kPairs][2] = {};
      if constexpr (Epilogue::kProduct.adds) {
        for_each_pair([&](int pair, int n, int i, int column) __attribute__((always_inline)) {
          (void)n, (void)i;
          if (exists(column)) residuals[pair][0] = Epilogue::residual(args_, row, column);
          if (exists(column + 1)) residuals[pair][1] = Epilogue::residual(args_, row, column + 1);
        });
      }
      for_each_pair([&](int pair, int n, int i, int column) __attribute__((always_inline)) {
        float* const to = args_.out + row * args_.out_stride + column;
        float results[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          results[j] = columns_[pair][j].template value<Epilogue>(sums.of[n][i + 2 * half + j], norm,
                                                                  residuals[pair][j], column + j);
        }
        if (exists(column + 1) && args_.out_stride % 2 == 0) {
          device::store_wide(to, make_float2(results[0], results[1]));
          return;
        }
        if (exists(column)) to[0] = results[0];
        if (exists(column + 1)) to[1] = results[1];
      });
    }
  }
  __device__ __forceinline__ static bool exists(int column) {
    return kOutputs % kColumns == 0 || column < kOutputs;
  }
  // Calls call(number, tile, sum, column) for the lane's pairs of columns of a row.
  template <class Call>
  __device__ __forceinline__ void for_each_pair(Call call) const {
#pragma unroll
    for (int n = 0; n < Sums::kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < Sums::kSums; i += 4) {
        call(n * (Sums::kSums / 4) + i / 4, n, i, first_column_ + Sums::column_of(n, i));
      }
    }
  }
  const ProductArguments& args_;
  Matrix& matrix_;
  const int first_column_;
  static constexpr int kPairs = kColumns / 8;
  ProductColumn columns_[kPairs][2];
};

}  // namespace policy
}  // namespace exphil

#endif
