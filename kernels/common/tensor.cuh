// Products on tensor cores in the precision of f32: tf32x3. A tf32 has 11 significant bits. An f32 is the sum
// of its first 11 bits and of the next ones, and a product of two of them is three products of tf32: what is
// left out, the product of the two rests, is below 2^-21 of it. (NVIDIA's CUTLASS calls this 3xTF32; Ootomo
// and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical
// peak performance", 2022.)
//
// A warp multiplies 16 columns of a weight matrix by 8 rows of X over 8 k, and adds: mma.m16n8k8, with the
// weights as its first matrix. A result depends on its column and its row alone, wherever in the tile they
// are; the tests compare tiles of all shapes. With EXPHIL_EMULATED_GRID the tests supply multiply_tf32().
#pragma once

#include "kernels/common/device_math.cuh"

// Whether the device's tensor cores know tf32.
#if defined(EXPHIL_EMULATED_GRID) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800)
#define EXPHIL_TF32 1
#else
#define EXPHIL_TF32 0
#endif

namespace exphil {
namespace device {

// Of 16 columns, one warp's share for each lane l, with q = l % 4: of column l / 4 slots q and q + 4 are
// numbers 0 and 2, of column l / 4 + 8 numbers 1 and 3. A slot is one of the 8 k.
struct TensorWeights {
  unsigned high[4], low[4];
};
// Of 8 rows: of row l / 4 slots q and q + 4.
struct TensorRows {
  unsigned high[2], low[2];
};
// Sums: number i is of column l / 4 + i / 2 * 8, row 2 q + i % 2.
struct TensorSums {
  float of[4];
};
EXPHIL_DEVICE int tensor_column(int lane, int i) {
  return lane / 4 + i / 2 * 8;
}
EXPHIL_DEVICE int tensor_row(int lane, int i) {
  return lane % 4 * 2 + i % 2;
}

// Tensor cores ignore the low bits of `low`. kHalf: 0x1000 rounds, 0 cuts.
template <unsigned kHalf>
EXPHIL_DEVICE void split_tf32(float value, unsigned* high, unsigned* low) {
  *high = (__float_as_uint(value) + kHalf) & 0xffffe000u;
  *low = __float_as_uint(__fsub_rn(value, __uint_as_float(*high)));
}
// Weights of a policy are cut: a warp splits more of them than of X, and rounding takes a third more
// instructions. Values of X are rounded, so that their rests have either sign and the products of two rests,
// which are left out, add up to nothing. Where both are rounded, these are a quarter as large.
template <unsigned kHalf = 0>
EXPHIL_DEVICE TensorWeights tensor_weights(float4 values) {
  TensorWeights made;
  split_tf32<kHalf>(values.x, &made.high[0], &made.low[0]);
  split_tf32<kHalf>(values.y, &made.high[1], &made.low[1]);
  split_tf32<kHalf>(values.z, &made.high[2], &made.low[2]);
  split_tf32<kHalf>(values.w, &made.high[3], &made.low[3]);
  return made;
}
EXPHIL_DEVICE TensorRows tensor_rows(float first, float second) {
  TensorRows made;
  split_tf32<0x1000>(first, &made.high[0], &made.low[0]);
  split_tf32<0x1000>(second, &made.high[1], &made.low[1]);
  return made;
}

#ifndef EXPHIL_EMULATED_GRID
EXPHIL_DEVICE void multiply_tf32(const unsigned (&weights)[4], const unsigned (&rows)[2], float (&sums)[4]) {
#if EXPHIL_TF32
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "r"(rows[0]), "r"(rows[1]));
#else  // its tensor cores know no tf32
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int slot = 0; slot < 8; ++slot) {
    const int own = lane / 4 * 4 + slot % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned weight = __shfl_sync(0xffffffffu, weights[i / 2 + slot / 4 * 2], own);
      const unsigned value = __shfl_sync(0xffffffffu, rows[slot / 4], tensor_row(lane, i) * 4 + slot % 4);
      sums[i] =
          __fmaf_rn(__uint_as_float(weight & 0xffffe000u), __uint_as_float(value & 0xffffe000u), sums[i]);
    }
  }
#endif
}
#endif

// sums[n] += 16 columns of weights times a part of the 8 rows of tile n.
template <int kTiles>
EXPHIL_DEVICE void multiply_part(const unsigned (&weights)[4], const TensorRows (&rows)[kTiles],
                                 unsigned (TensorRows::*part)[2], TensorSums (&sums)[kTiles]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) multiply_tf32(weights, rows[n].*part, sums[n].of);
}
// The same of all parts, the small products first.
template <int kTiles>
EXPHIL_DEVICE void multiply_tf32x3(const TensorWeights& weights, const TensorRows (&rows)[kTiles],
                                   TensorSums (&sums)[kTiles]) {
  multiply_part(weights.low, rows, &TensorRows::high, sums);
  multiply_part(weights.high, rows, &TensorRows::low, sums);
  multiply_part(weights.high, rows, &TensorRows::high, sums);
}
// And of several columns' weights: no product waits for the one before it.
template <int kColumnTiles, int kTiles>
EXPHIL_DEVICE void multiply_tf32x3(const TensorWeights (&weights)[kColumnTiles],
                                   const TensorRows (&rows)[kTiles],
                                   TensorSums (&sums)[kColumnTiles][kTiles]) {
#pragma unroll
  for (int m = 0; m < kColumnTiles; ++m) multiply_part(weights[m].low, rows, &TensorRows::high, sums[m]);
#pragma unroll
  for (int m = 0; m < kColumnTiles; ++m) multiply_part(weights[m].high, rows, &TensorRows::low, sums[m]);
#pragma unroll
  for (int m = 0; m < kColumnTiles; ++m) multiply_part(weights[m].high, rows, &TensorRows::high, sums[m]);
}

// 32 k of kRowTiles times 8 rows by kColumnTiles times 16 columns, by one warp. weights(tile of 8 k, tile of
// columns): the lane's TensorWeights; rows(half, tile): four consecutive k of the lane's row, those of half 0
// or 1 of the segment from 4 (lane % 4) on.
template <int kColumnTiles, int kRowTiles, class Weights, class Rows>
EXPHIL_DEVICE void add_segment_on_tensor_cores(Weights weights, Rows rows,
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
        x[n] = tile == 0 ? tensor_rows(values[n].x, values[n].y) : tensor_rows(values[n].z, values[n].w);
      }
#pragma unroll
      for (int m = 0; m < kColumnTiles; ++m) {
        multiply_tf32x3(weights(2 * half + tile, m), x, sums[m]);
      }
    }
  }
}

}  // namespace device
}  // namespace exphil
