// The matrix products of policy/product.cuh where there are many results.
#pragma once

#include "kernels/policy/product.cuh"

namespace exphil {
namespace policy {

// A tile of kManyRows rows by 64 columns, 8 x 8 results per thread in registers, 16 k at a time through two
// buffers in shared memory, and as many registers again for the sum over segments.
constexpr int kManyDepth = 16;

// X of one k step is stored transposed, [k][row], with the rows of k in group k / 4 permuted by an XOR, so
// that neither the transposing stores nor the reads have bank conflicts.
struct alignas(16) ManyTiles {
  float x[2][kManyDepth][kManyRows];
  float w[2][kManyDepth][kManyColumns];
};

template <int kK, int kOutputs, class Epilogue>
class ManyProduct : Tile {
 public:
  static_assert(sizeof(ManyTiles) <= 48 * 1024, "static shared memory");

  using Shared = ManyTiles;

  __device__ __forceinline__ ManyProduct(const ProductArguments& args, ManyTiles& tiles)
      : Tile(args, kManyRows, kManyColumns), tiles_(tiles) {}

  __device__ __forceinline__ void run() {
    constexpr int kSteps = kK / kManyDepth;
    begin_launch_after();
    fetch_weights(0);
    await_launch_before();
    fetch_rows(0);
    put(0);
    __syncthreads();
    float total[kI][kJ] = {};
#pragma unroll 1
    for (int step = 0; step < kSteps; step += 2) {  // a segment
      float sum[kI][kJ] = {};
      fetch(step + 1);
      accumulate(0, sum);
      put(1);
      __syncthreads();
      if (step + 2 < kSteps) fetch(step + 2);
      accumulate(1, sum);
      if (step + 2 < kSteps) put(0);
      fold(sum, total);
      __syncthreads();
    }
    write(total);
  }

 private:
  static constexpr int kColumns = product_columns(kOutputs);
  // A warp has 4 groups of rows and 8 of columns. Rows of a thread: 4, and 4 more 64 further on; columns: 4,
  // and 4 more 32 further on.
  static constexpr int kI = 8, kJ = 8;
  static_assert(kI * kJ * kManyThreads == kManyRows * kManyColumns, "every result once");

  __device__ __forceinline__ void fetch(int step) {
    fetch_weights(step);
    fetch_rows(step);
  }

  __device__ __forceinline__ void fetch_rows(int step) {
#pragma unroll
    for (int i = 0; i < kManyRows / 32; ++i) {
      const long long row = first_row_ + thread_ / 4 + 32 * i;
      x_[i] = row < args_.rows ? *reinterpret_cast<const float4*>(args_.x + row * args_.x_stride +
                                                                  step * kManyDepth + thread_ % 4 * 4)
                               : make_float4(0, 0, 0, 0);
    }
  }

  __device__ __forceinline__ void fetch_weights(int step) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      w_[i] =
          __ldg(static_cast<const Group*>(args_.weights) +
                (step * (kManyDepth / 4) + thread_ / 64 + 2 * i) * kColumns + first_column_ + thread_ % 64);
    }
  }

  __device__ __forceinline__ void put(int buffer) {
    const int group = thread_ % 4;
#pragma unroll
    for (int i = 0; i < kManyRows / 32; ++i) {
      const int row = (thread_ / 4 + 32 * i) ^ (group * 8);
      tiles_.x[buffer][4 * group + 0][row] = x_[i].x;
      tiles_.x[buffer][4 * group + 1][row] = x_[i].y;
      tiles_.x[buffer][4 * group + 2][row] = x_[i].z;
      tiles_.x[buffer][4 * group + 3][row] = x_[i].w;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int k = 4 * (thread_ / 64 + 2 * i), column = thread_ % 64;
      const float4 weight = widen(w_[i]);
      tiles_.w[buffer][k + 0][column] = weight.x;
      tiles_.w[buffer][k + 1][column] = weight.y;
      tiles_.w[buffer][k + 2][column] = weight.z;
      tiles_.w[buffer][k + 3][column] = weight.w;
    }
  }

  __device__ __forceinline__ int row_of(int i) const {
    return (thread_ / 32 * 4 + thread_ % 32 / 8) * 4 + i % 4 + i / 4 * 64;
  }
  __device__ __forceinline__ int column_of(int j) const {
    return thread_ % 8 * 4 + j % 4 + j / 4 * 32;
  }

  __device__ __forceinline__ void accumulate(int buffer, float (&sum)[kI][kJ]) const {
#pragma unroll 4  // more would need more registers than there are
    for (int k = 0; k < kManyDepth; ++k) {
      float x[kI], w[kJ];
#pragma unroll
      for (int i = 0; i < kI; i += 4) {
        const float4 v = *reinterpret_cast<const float4*>(&tiles_.x[buffer][k][row_of(i) ^ (k / 4 * 8)]);
        x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
      }
#pragma unroll
      for (int j = 0; j < kJ; j += 4) {
        const float4 v = *reinterpret_cast<const float4*>(&tiles_.w[buffer][k][column_of(j)]);
        w[j] = v.x, w[j + 1] = v.y, w[j + 2] = v.z, w[j + 3] = v.w;
      }
#pragma unroll
      for (int i = 0; i < kI; ++i) {
#pragma unroll
        for (int j = 0; j < kJ; ++j) sum[i][j] = __fmaf_rn(w[j], x[i], sum[i][j]);
      }
    }
  }

  static __device__ __forceinline__ void fold(const float (&sum)[kI][kJ], float (&total)[kI][kJ]) {
#pragma unroll
    for (int i = 0; i < kI; ++i) {
#pragma unroll
      for (int j = 0; j < kJ; ++j) total[i][j] = __fadd_rn(total[i][j], sum[i][j]);
    }
  }

  __device__ __forceinline__ void write(const float (&total)[kI][kJ]) const {
    const auto exists = [&](int i, int j) {
      return first_row_ + row_of(i) < args_.rows && first_column_ + column_of(j) < kOutputs;
    };
    constexpr int kTogether = kI / 2;
#pragma unroll
    for (int first = 0; first < kI; first += kTogether) {
      NormFactors norms[kTogether];
      float residuals[kTogether][kJ];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const long long row = first_row_ + row_of(first + i);
        norms[i] = row < args_.rows ? found_factors<Epilogue>(args_, row) : NormFactors{1.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < kJ; ++j) {
          residuals[i][j] =
              exists(first + i, j) ? Epilogue::residual(args_, row, first_column_ + column_of(j)) : 0.0f;
        }
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
#pragma unroll
        for (int j = 0; j < kJ; ++j) {
          if (!exists(first + i, j)) continue;
          write_result<Epilogue>(args_, first_row_ + row_of(first + i), first_column_ + column_of(j),
                                 total[first + i][j], norms[i], residuals[i][j]);
        }
      }
    }
  }

  ManyTiles& tiles_;
  float4 x_[kManyRows / 32];
  Group w_[2];
};

}  // namespace policy
}  // namespace exphil
