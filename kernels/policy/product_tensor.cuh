// The matrix products of policy/product.cuh on tensor cores (common/tensor.cuh), for the precision tf32x3.
// Every shape sums up in one order: a segment of 32 k from zero, 8 k at a time in the order of
// tensor_weight() (policy/layout.cuh), then the segments in theirs.
#pragma once

#include "kernels/common/device_memory.cuh"
#include "kernels/common/tensor.cuh"
#include "kernels/policy/product.cuh"

namespace exphil {
namespace policy {

using device::TensorSums;

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
    Completion<kMine> completion;
    load_column<kOutputs, Epilogue>(completion);
    await_launch_before();
    fetch_rows(warp_);
    load_rows<kWarps, kOutputs, Epilogue, kFindsNorms>(completion);
    float total[kMine] = {};
#pragma unroll 1
    for (int first = 0; first < kSegments; first += kWarps) {
      if (first + warp_ < kSegments) add_segment(first + warp_);
      fetch_weights(first + kWarps + warp_), fetch_rows(first + kWarps + warp_);
      __syncthreads();
      add<kWarps, kSegments>(first, parts_, total);
      __syncthreads();
    }
    write<kWarps, kOutputs, Epilogue>(total, completion);
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

  // Of two tiles of rows all loads are under way ahead; of more there are no registers for that.
  static constexpr bool kFetches = kRowTiles <= 2;
  __device__ __forceinline__ void fetch_rows(int segment) {
    if (!kFetches || segment >= kSegments) return;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) rows_[half][n] = load_row(segment, half, n);
    }
  }
  // Beyond the last row of another one, for sums that nobody reads.
  __device__ __forceinline__ float4 load_row(int segment, int half, int n) const {
    const long long row = first_row_ + 8 * n + lane_ / 4;
    return *reinterpret_cast<const float4*>(args_.x +
                                            (row < args_.rows ? row : args_.rows - 1) * args_.x_stride +
                                            segment * kSegment + 16 * half + lane_ % 4 * 4);
  }

  __device__ __forceinline__ void add_segment(int segment) {
    TensorSums sums[2][kRowTiles] = {};
    device::add_segment_on_tensor_cores<2, kRowTiles>(
        [&](int tile, int m) { return device::tensor_weights(held_[2 * tile + m]); },
        [&](int half, int n) {
          if constexpr (kFetches) return rows_[half][n];
          return load_row(segment, half, n);
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

  TensorPart<kRows>* const parts_;
  float4 held_[kGroups];                      // the weights of a segment
  float4 rows_[2][kFetches ? kRowTiles : 1];  // and the values
};

// Buffers for a segment of a tile each: the groups of W, and of X groups [row][8], in which those of odd rows
// are 4 further on, so that no access has bank conflicts.
struct TensorTiles {
  static constexpr int kStages = 3;
  float4 w[kStages][kSegment / 4][kTensorManyColumns];
  float4 x[kStages][kTensorManyRows][kSegment / 4];
};

// 32 rows by 64 columns: each of two warps has 32 columns. Many small blocks fill the device where a large
// tile would leave parts of it idle, and a warp uses each weight that it splits for 32 rows.
template <int kK, int kOutputs, class Epilogue>
class ManyTensorProduct : Tile {
 public:
  static_assert(sizeof(TensorTiles) <= 48 * 1024, "static shared memory");
  using Shared = TensorTiles;

  __device__ __forceinline__ ManyTensorProduct(const ProductArguments& args, TensorTiles& tiles)
      : Tile(args, kTensorManyRows, kTensorManyColumns), tiles_(tiles) {}

  __device__ __forceinline__ void run() {
    begin_launch_after();
#pragma unroll
    for (int stage = 0; stage < kAhead; ++stage) fetch_weights(stage, stage);
    await_launch_before();
#pragma unroll
    for (int stage = 0; stage < kAhead; ++stage) {
      fetch_rows(stage, stage);
      device::commit_copies();
    }
    TensorSums total[kColumnTiles][kRowTiles] = {};
    int stage = 0;
#pragma unroll 1
    for (int segment = 0; segment < kSegments; ++segment) {
      device::wait_copies<kAhead - 1>();
      __syncthreads();
      const int free = stage == 0 ? kAhead : stage - 1;  // whose segment was the one before
      fetch_weights(segment + kAhead, free);
      fetch_rows(segment + kAhead, free);
      device::commit_copies();
      add_segment(stage, total);
      stage = stage == kAhead ? 0 : stage + 1;
    }
    write(total);
  }

 private:
  static constexpr int kGroups = kSegment / 4, kSegments = kK / kSegment, kAhead = TensorTiles::kStages - 1;
  static constexpr int kWarpColumns = kTensorManyColumns / (kTensorManyThreads / 32);
  static constexpr int kColumnTiles = kWarpColumns / 16, kRowTiles = kTensorManyRows / 8;
  static_assert(kWarpColumns == 32, "the order of policy::tensor_weight()");

  __device__ __forceinline__ void fetch_weights(int segment, int stage) {
    if (segment >= kSegments) return;
    const float4* const from = static_cast<const float4*>(args_.weights) +
                               segment * kGroups * product_columns(kOutputs) + first_column_;
#pragma unroll
    for (int i = 0; i < kGroups * kTensorManyColumns / kTensorManyThreads; ++i) {
      const int at = thread_ + i * kTensorManyThreads;
      const int group = at / kTensorManyColumns, column = at % kTensorManyColumns;
      device::copy_async<16>(&tiles_.w[stage][group][column],
                             from + group * product_columns(kOutputs) + column, true);
    }
  }

  static __device__ __forceinline__ int place(int row, int group) {
    return group ^ (row % 2 * 4);
  }

  __device__ __forceinline__ void fetch_rows(int segment, int stage) {
    if (segment >= kSegments) return;
#pragma unroll
    for (int i = 0; i < kGroups * kTensorManyRows / kTensorManyThreads; ++i) {
      const int at = thread_ + i * kTensorManyThreads, row = at / kGroups, group = at % kGroups;
      device::copy_async<16>(&tiles_.x[stage][row][place(row, group)],
                             args_.x + (first_row_ + row) * args_.x_stride + segment * kSegment + 4 * group,
                             first_row_ + row < args_.rows);
    }
  }

  __device__ __forceinline__ void add_segment(int stage, TensorSums (&total)[kColumnTiles][kRowTiles]) const {
    TensorSums sums[kColumnTiles][kRowTiles] = {};
    device::add_segment_on_tensor_cores<kColumnTiles, kRowTiles>(
        [&](int tile, int m) {
          return device::tensor_weights(tiles_.w[stage][2 * tile + m][warp_ * kWarpColumns + lane_]);
        },
        [&](int half, int n) {
          const int row = 8 * n + lane_ / 4;
          return tiles_.x[stage][row][place(row, 4 * half + lane_ % 4)];
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

  // Of result i of tile {m, n}.
  __device__ __forceinline__ long long row_of(int n, int i) const {
    return first_row_ + 8 * n + device::tensor_row(lane_, i);
  }
  __device__ __forceinline__ int column_of(int m, int i) const {
    return first_column_ + warp_ * kWarpColumns + 16 * m + device::tensor_column(lane_, i);
  }

  __device__ __forceinline__ void write(const TensorSums (&total)[kColumnTiles][kRowTiles]) const {
    NormFactors norms[kRowTiles][2];
    TensorSums residuals[kColumnTiles][kRowTiles];
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool exists = row_of(n, i) < args_.rows;
        norms[n][i] = exists ? found_factors<Epilogue>(args_, row_of(n, i)) : NormFactors{1.0f, 0.0f};
#pragma unroll
        for (int m = 0; m < kColumnTiles; ++m) {
#pragma unroll
          for (int j = i; j < 4; j += 2) {
            const bool is_output = exists && column_of(m, j) < kOutputs;
            residuals[m][n].of[j] =
                is_output ? Epilogue::residual(args_, row_of(n, i), column_of(m, j)) : 0.0f;
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kColumnTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (row_of(n, i) >= args_.rows || column_of(m, i) >= kOutputs) continue;
          write_result<Epilogue>(args_, row_of(n, i), column_of(m, i), total[m][n].of[i], norms[n][i % 2],
                                 residuals[m][n].of[i]);
        }
      }
    }
  }

  TensorTiles& tiles_;
};

}  // namespace policy
}  // namespace exphil
