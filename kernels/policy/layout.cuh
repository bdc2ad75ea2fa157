// The layout of a policy's matrices, and the tiles of the kernels over many rows. Everything is constexpr
// over a Network, so one definition serves both sides: c_src/cuda/policy packs and launches with the one that
// it lowers from a checkpoint's network; policy/dims.cuh has it as a kernel's define.
#pragma once

#include "kernels/policy/network.cuh"
#include "kernels/policy/parts.cuh"

namespace exphil {
namespace policy {

// The weights of a matrix, in groups of four consecutive k of one row: kernels/policy/weights.cuh has the
// type of a group. A part of bytes, because their size depends on how they are stored.
struct MatrixPart : Part<unsigned char> {
  constexpr MatrixPart() = default;
  constexpr MatrixPart(const Network& network, long long after, long long weights, long long alignment = 16)
      : Part<unsigned char>(after, weights * network.weight_bytes(), alignment) {}
};

// What completes the sums of a matrix's rows, a value of each for every row: the bias, where it has one; the
// scales of int8; and for the matrix behind a norm the sums of its rows, where the product centres. The sums
// of a diagonal's rows are its weights.
struct RowVectors {
  Part<float> bias, scale, sums;
  constexpr RowVectors() = default;
  constexpr RowVectors(const Network& network, long long after, long long rows, const Product& product,
                       bool has_bias)
      : bias(after, has_bias ? rows : 0),
        scale(bias.end(), network.row_scales() ? rows : 0),
        sums(scale.end(), network.centres(product) || product.diagonal ? rows : 0) {}
  constexpr long long end() const { return sums.end(); }
};

// ---- the kernels over many rows ----
//

// policy/product.cu. A weight matrix is groups [k / 4][product_columns(outputs)].
constexpr int product_columns(int outputs) {
  return round_up(outputs, 64);
}

// Rows of a product_few tile for the inner dimension k, so that X and the segment sums together fit in 48 KB
// of shared memory; 0 where not even one row fits: product_some then handles any number of rows.
constexpr int few_rows(int k) {
  int rows = 16;
  while (rows > 0 && 2 * k * rows * 4 > 40 * 1024) rows /= 2;
  return rows;
}
constexpr int kFewColumns = 32;
// Threads of product_few: its warps share the segments, in as few turns as 12 warps need, and of as many
// segments each as possible. 9 segments (k = 288) take one turn of 9 warps.
constexpr int few_threads(int k) {
  const int segments = k / kSegment, turns = divide_up(segments, 12);
  return 32 * most(8, divide_up(segments, turns));
}
constexpr int kFollowedRows = 4;  // of a tile of policy_product_follow
constexpr int kSomeRows = 16, kSomeColumns = 32, kSomeThreads = 128;
constexpr int kManyRows = 128, kManyColumns = 64, kManyThreads = 128;

// On tensor cores (policy/product_tensor.cuh) tiles of few and of some rows have 32 columns, and the warps
// share the segments; those of many rows have more blocks instead.
constexpr int kTensorFewRows = 16, kTensorFewThreads = 256, kTensorSomeRows = 32;
constexpr int kTensorManyRows = 32, kTensorManyColumns = 64, kTensorManyThreads = 64;
constexpr int tensor_some_threads(int k) {
  return k / kSegment > 12 ? 256 : 128;
}

// The tile of a block of policy_product_few, where its rows are not 0, of policy_product_some and of
// policy_product_many.
struct ProductTile {
  int rows, columns, threads;
};
constexpr ProductTile few_tile(const Network& n, int k) {
  if (n.on_tensor_cores()) return {kTensorFewRows, kFewColumns, kTensorFewThreads};
  return {few_rows(k), kFewColumns, few_threads(k)};
}
constexpr ProductTile some_tile(const Network& n, int k) {
  if (n.on_tensor_cores()) return {kTensorSomeRows, kFewColumns, tensor_some_threads(k)};
  return {kSomeRows, kSomeColumns, kSomeThreads};
}

constexpr ProductTile many_tile(const Network& n) {
  if (n.on_tensor_cores()) return {kTensorManyRows, kTensorManyColumns, kTensorManyThreads};
  return {kManyRows, kManyColumns, kManyThreads};
}

// Where weight k of a column is among the floats of 16 k of all columns, in the order in which a warp hands
// it to tensor cores: a lane's four weights of 8 k and 16 columns (common/tensor.cuh) are a group. Slots q
// and q + 4 of the first 8 k are k = 4 q and 4 q + 1, those of the second ones the two after them, so that a
// lane reads four consecutive values of X.
constexpr int tensor_weight(int k, int column, int columns) {
  const int tile = k % 4 / 2, slot = k % 2, lane = column % 8 * 4 + k / 4;
  const int group = 2 * tile + column % 32 / 16;
  return (group * columns + column / 32 * 32 + lane) * 4 + column % 16 / 8 + 2 * slot;
}

}  // namespace policy
}  // namespace exphil
