// The gradient of one linear layer y = x W^T + b over many rows: that of x, and sums over the rows for W and
// b. Every element is added up by one thread in the order of the rows, so any number of threads gives the
// same bits. Used by the gradients of policies and of the dense recurrent operators; one call at a time.
#pragma once

#include <cstdint>

#include "host/simd/aligned.hpp"
#include "host/simd/kept_buffer.hpp"
#include "host/simd/matmul.hpp"

namespace exphil::host {

// Rows in one piece of a thread.
inline constexpr std::int64_t kPieceRows = 48;

class LinearGradient {
 public:
  LinearGradient() = default;
  // weights: {outs, depth}. has_bias: whether the sum of b is wanted.
  LinearGradient(const float* weights, std::int64_t outs, std::int64_t depth, bool has_bias);

  // dx = dy W, or dx += dy W; dx has padded(depth) floats a row.
  void back(MatrixRows dy, std::int64_t rows, MatrixRows dx, Epilogue epilogue) const;
  // The second one in the calling thread.
  void add_back(MatrixRows dy, std::int64_t rows, MatrixRows dx) const;
  // Adds dy^T x to the sum of W, and the sum of dy to that of b.
  void add(MatrixRows dy, MatrixRows x, std::int64_t rows);
  // The sums: {outs, depth}; {outs}, or null where there is none.
  void write(float* weights, float* bias) const;

 private:
  struct Tile;
  void add_tile(const Tile& tile, MatrixRows dy, MatrixRows x, std::int64_t rows);

  std::int64_t outs_ = 0, depth_ = 0;
  KeptBuffer packed_;  // W^T
  PackedMatrix transposed_;
  KeptBuffer sums_;     // {outs, padded(depth)}
  AlignedBuffer bias_;  // {padded(outs)}, or nothing
};

}  // namespace exphil::host
