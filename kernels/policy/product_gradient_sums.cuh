// The sums of a tile of policy/product_gradient.cu: in f32, or on tensor cores.
#pragma once

#include "kernels/common/tensor.cuh"
#include "kernels/policy/product_gradient_tiles.cuh"

namespace exphil {
namespace policy {
namespace {

// A thread's sums of a tile of kRows (64 or 32) by 64. Both forms have
//   add<kA, kB>(a, b)   the products of a step; whether the operands lie along k
//   store(to)           writes them to {rows, kSumStride}
template <int kRows>
class PlainSums {
 public:
  template <bool kA, bool kB>
  __device__ __forceinline__ void add(const float* a, const float* b) {
#pragma unroll
    for (int k = 0; k < kTileDepth; ++k) {
      float left[kDown], right[kAcross];
#pragma unroll
      for (int i = 0; i < kDown; ++i) left[i] = a[place<kA>(row(i), k)];
#pragma unroll
      for (int j = 0; j < kAcross; ++j) right[j] = b[place<kB>(column(j), k)];
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
#pragma unroll
        for (int j = 0; j < kAcross; ++j) total_[i][j] = __fmaf_rn(left[i], right[j], total_[i][j]);
      }
    }
  }

  __device__ __forceinline__ void store(float* to) const {
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int j = 0; j < kAcross; ++j) to[row(i) * kSumStride + column(j)] = total_[i][j];
    }
  }

 private:
  static constexpr int kDown = kRows / 8, kAcross = kTileColumns / 16;

  __device__ __forceinline__ static int row(int i) {
    return static_cast<int>(threadIdx.x) / 16 + 8 * i;
  }
  __device__ __forceinline__ static int column(int j) {
    return static_cast<int>(threadIdx.x) % 16 + 16 * j;
  }

  float total_[kDown][kAcross] = {};
};

// A warp has half of the rows and half of the columns. The sums of a step begin at zero and are then added.
template <int kRows>
class TensorTileSums {
 public:
  // In two steps of 8 k. Both operands are rounded: a gradient may cancel.
  template <bool kA, bool kB>
  __device__ __forceinline__ void add(const float* a, const float* b) {
    device::TensorSums sums[kDown][kAcross] = {};
#pragma unroll
    for (int c = 0; c < 4; c += 2) {
      device::TensorWeights left[kDown];
      device::TensorRows right[kAcross];
#pragma unroll
      for (int m = 0; m < kDown; ++m) {
        const int row = first_row(m);
        left[m] = device::tensor_weights<0x1000>(
            make_float4(a[lane_place<kA>(row, lane(), c)], a[lane_place<kA>(row + 8, lane(), c)],
                        a[lane_place<kA>(row, lane(), c + 1)], a[lane_place<kA>(row + 8, lane(), c + 1)]));
      }
#pragma unroll
      for (int n = 0; n < kAcross; ++n) {
        const int column = first_column(n);
        right[n] = device::tensor_rows(b[lane_place<kB>(column, lane(), c)],
                                       b[lane_place<kB>(column, lane(), c + 1)]);
      }
      device::multiply_tf32x3(left, right, sums);
    }
#pragma unroll
    for (int m = 0; m < kDown; ++m) {
#pragma unroll
      for (int n = 0; n < kAcross; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) total_[m][n].of[i] = __fadd_rn(total_[m][n].of[i], sums[m][n].of[i]);
      }
    }
  }

  __device__ __forceinline__ void store(float* to) const {
#pragma unroll
    for (int m = 0; m < kDown; ++m) {
#pragma unroll
      for (int n = 0; n < kAcross; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = first_row(m) + device::tensor_column(lane(), 2 * half);
          const int column = first_column(n) + device::tensor_row(lane(), 0);
          const float(&of)[4] = total_[m][n].of;
          *reinterpret_cast<float2*>(to + row * kSumStride + column) =
              make_float2(of[2 * half], of[2 * half + 1]);
        }
      }
    }
  }

 private:
  static constexpr int kDown = kRows / 32, kAcross = kTileColumns / 16;

  __device__ __forceinline__ static int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  __device__ __forceinline__ static int first_row(int m) {
    return static_cast<int>(threadIdx.x) / 64 * (kRows / 2) + 16 * m;
  }
  __device__ __forceinline__ static int first_column(int n) {
    return static_cast<int>(threadIdx.x) / 32 % 2 * (kTileColumns / 2) + 8 * n;
  }

  device::TensorSums total_[kDown][kAcross] = {};
};

}  // namespace
}  // namespace policy
}  // namespace exphil
