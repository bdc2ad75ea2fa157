// The matrix products of policy/product.cuh on tensor cores (common/tensor.cuh), for the precision tf32x3.
// Every shape sums up in one order: a segment of 32 k from zero, 8 k at a time in the order of
// tensor_weight() (policy/layout.cuh), then the segments in theirs.
#pragma once

#include "kernels/common/device_memory.cuh"
#include "kernels/common/tensor.cuh"
#include "kernels/policy/product.cuh"

namespace exphil {
namespace policy {

using device::TensorRows;
using device::TensorSums;

// 32 k of kRowTiles times 8 rows by kColumnTiles times 16 columns, by one warp. weights(tile of 8 k, tile of
// columns): the lane's four; rows(half, tile): four consecutive k of the lane's row, those of half 0 or 1 of
// the segment from 4 (lane % 4) on.
template <int kColumnTiles, int kRowTiles, class Weights, class Rows>
__device__ __forceinline__ void add_segment_on_tensor_cores(Weights weights, Rows rows,
                                                            TensorSums (&sums)[kColumnTiles][kRowTiles]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float4 values[kRowTiles];
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) values[n] = rows(half, n);
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      TensorRows x[kRowTiles];
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        x[n] = tile == 0 ? device::tensor_rows(values[n].x, values[n].y)
                         : device::tensor_rows(values[n].z, values[n].w);
      }
#pragma unroll
      for (int m = 0; m < kColumnTiles; ++m) {
        device::multiply_tf32x3(device::tensor_weights(weights(2 * half + tile, m)), x, sums[m]);
      }
    }
  }
}

// The sums of a warp's segment, padded so that there are no bank conflicts.
template <int kRows>
struct TensorPart {
  float sums[kRows][kFewColumns + 4];
};

// 8 kRowTiles rows by 32 columns: every warp computes all of it over each kWarps-th segment, and the block
// adds the segments. kFindsNorms: the factors of the rows' norms, which are read otherwise.
template <int kK, int kOutputs, class Epilogue, int kRowTiles, int kWarps, bool kFindsNorms>
class TensorProduct : SplitTile {
 public:
  static constexpr int kRows = 8 * kRowTiles;
  using Shared = TensorPart<kRows>[kWarps];

  __device__ __forceinline__ TensorProduct(const ProductArguments& args, Shared& parts)
      : SplitTile(args, kRows), parts_(parts) {}

  __device__ __forceinline__ void run() {
    begin_launch_after();
    fetch_weights(warp_);
    await_launch_before();
    float total[kMine] = {};
#pragma unroll 1
    for (int first = 0; first < kSegments; first += kWarps) {
      if (first + warp_ < kSegments) add_segment(first + warp_);
      fetch_weights(first + kWarps + warp_);
      __syncthreads();
      add<kWarps, kSegments>(first, parts_, total);
      __syncthreads();
    }
    write<kWarps, kOutputs, Epilogue>(total, [&](long long row) { return factors(row); });
  }

 private:
  static constexpr int kGroups = kSegment / 4, kSegments = kK / kSegment, kMine = kRows / kWarps;
  static_assert(kFewColumns == 32 && kMine * kWarps == kRows, "a lane for each column");

  __device__ __forceinline__ void fetch_weights(int segment) {
    if (segment >= kSegments) return;
    const float4* const from = static_cast<const float4*>(args_.weights) + first_column_ + lane_;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      held_[g] = __ldg(from + (segment * kGroups + g) * product_columns(kOutputs));
    }
  }

  __device__ __forceinline__ void add_segment(int segment) {
    TensorSums sums[2][kRowTiles] = {};
    add_segment_on_tensor_cores<2, kRowTiles>(
        [&](int tile, int m) { return held_[2 * tile + m]; },
        [&](int half, int n) {
          const long long row = first_row_ + 8 * n + lane_ / 4;
          if (row >= args_.rows) return make_float4(0, 0, 0, 0);
          return *reinterpret_cast<const float4*>(args_.x + row * args_.x_stride + segment * kSegment +
                                                  16 * half + lane_ % 4 * 4);
        },
        sums);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          parts_[warp_].sums[8 * n + device::tensor_row(lane_, i)][16 * m + device::tensor_column(lane_, i)] =
              sums[m][n].of[i];
        }
      }
    }
  }

  __device__ __forceinline__ NormFactors factors(long long row) const {
    if constexpr (kFindsNorms && Epilogue::kNormed) {
      return row_factors<Epilogue>(args_.x + row * args_.x_stride, args_);
    } else {
      return found_factors<Epilogue>(args_, row);
    }
  }

  TensorPart<kRows>* const parts_;
  float4 held_[kGroups];  // the weights of a segment
};

// Two buffers of a segment of a tile: the groups of W, and of X groups [row][8], in which those of odd rows
// are 4 further on, so that no access has bank conflicts.
struct TensorTiles {
  float4 w[2][kSegment / 4][kManyColumns];
  float4 x[2][kManyRows][kSegment / 4];
};

// 128 rows by 64 columns: each warp has 32 rows.
template <int kK, int kOutputs, class Epilogue>
class ManyTensorProduct : Tile {
 public:
  static_assert(sizeof(TensorTiles) <= 48 * 1024, "static shared memory");
  using Shared = TensorTiles;

  __device__ __forceinline__ ManyTensorProduct(const ProductArguments& args, TensorTiles& tiles)
      : Tile(args, kManyRows, kManyColumns), tiles_(tiles) {}

  __device__ __forceinline__ void run() {
    begin_launch_after();
    fetch_weights(0);
    await_launch_before();
    fetch_rows(0);
    TensorSums total[kColumnTiles][kRowTiles] = {};
#pragma unroll 1
    for (int segment = 0; segment < kSegments; ++segment) {
      device::copies_done();
      __syncthreads();
      fetch_weights(segment + 1);
      fetch_rows(segment + 1);
      add_segment(segment % 2, total);
    }
    write(total);
  }

 private:
  static constexpr int kGroups = kSegment / 4, kSegments = kK / kSegment;
  static constexpr int kColumnTiles = kManyColumns / 16, kWarpRows = kManyRows / (kManyThreads / 32);
  static constexpr int kRowTiles = kWarpRows / 8;

  __device__ __forceinline__ void fetch_weights(int segment) {
    if (segment >= kSegments) return;
    const float4* const from = static_cast<const float4*>(args_.weights) +
                               segment * kGroups * product_columns(kOutputs) + first_column_;
#pragma unroll
    for (int i = 0; i < kGroups * kManyColumns / kManyThreads; ++i) {
      const int at = thread_ + i * kManyThreads, group = at / kManyColumns, column = at % kManyColumns;
      device::copy_async<16>(&tiles_.w[segment % 2][group][column],
                             from + group * product_columns(kOutputs) + column, true);
    }
  }

  static __device__ __forceinline__ int place(int row, int group) {
    return group ^ (row % 2 * 4);
  }

  __device__ __forceinline__ void fetch_rows(int segment) {
    if (segment >= kSegments) return;
#pragma unroll
    for (int i = 0; i < kGroups * kManyRows / kManyThreads; ++i) {
      const int at = thread_ + i * kManyThreads, row = at / kGroups, group = at % kGroups;
      device::copy_async<16>(&tiles_.x[segment % 2][row][place(row, group)],
                             args_.x + (first_row_ + row) * args_.x_stride + segment * kSegment + 4 * group,
                             first_row_ + row < args_.rows);
    }
  }

  __device__ __forceinline__ void add_segment(int buffer,
                                              TensorSums (&total)[kColumnTiles][kRowTiles]) const {
    TensorSums sums[kColumnTiles][kRowTiles] = {};
    add_segment_on_tensor_cores<kColumnTiles, kRowTiles>(
        [&](int tile, int m) { return tiles_.w[buffer][2 * tile + m % 2][m / 2 * 32 + lane_]; },
        [&](int half, int n) {
          const int row = warp_ * kWarpRows + 8 * n + lane_ / 4;
          return tiles_.x[buffer][row][place(row, 4 * half + lane_ % 4)];
        },
        sums);
#pragma unroll
    for (int m = 0; m < kColumnTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) total[m][n].of[i] = __fadd_rn(total[m][n].of[i], sums[m][n].of[i]);
      }
    }
  }

  __device__ __forceinline__ void write(const TensorSums (&total)[kColumnTiles][kRowTiles]) const {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const long long row = first_row_ + warp_ * kWarpRows + 8 * n + device::tensor_row(lane_, i);
        if (row >= args_.rows) continue;
        const NormFactors norm = found_factors<Epilogue>(args_, row);
#pragma unroll
        for (int m = 0; m < kColumnTiles; ++m) {
#pragma unroll
          for (int j = i; j < 4; j += 2) {
            const int column = first_column_ + 16 * m + device::tensor_column(lane_, j);
            if (column < kOutputs) write_result<Epilogue>(args_, row, column, total[m][n].of[j], norm);
          }
        }
      }
    }
  }

  TensorTiles& tiles_;
};

}  // namespace policy
}  // namespace exphil
