// The gradient of one linear layer y = x W^T + b over many rows: that of x, and sums over the rows for W and
// b. Every element is added up by one thread in the order of the rows, so any number of threads gives the
// same bits. Used by the gradients of policies and of the dense recurrent operators; one call at a time.
#pragma once

#include <cstdint>

#include "host/simd/aligned.hpp"
#include "host/simd/matmul.hpp"

namespace exphil::host {

// Rows, or outputs of a weight, in one piece of a thread.
inline constexpr std::int64_t kPieceRows = 48;

// Memory that the products of all layers use in turn.
class ProductScratch {
 public:
  // Rows in one product: the columns of dy and the panels of x then fit into L2.
  static constexpr std::int64_t kChunk = 512;
  ProductScratch(std::int64_t most_outs, std::int64_t most_depth);
  float *columns, *panels;  // {outs, kChunk} and {panels(depth), kChunk, kPanel}
  const float* zeros;       // {padded(depth)}

 private:
  AlignedBuffer memory_;
};

class LinearGradient {
 public:
  LinearGradient() = default;
  // weights: {outs, depth}.
  LinearGradient(const float* weights, std::int64_t outs, std::int64_t depth);

  // dx = dy W, or dx += dy W; dx has padded(depth) floats a row.
  void back(MatrixRows dy, std::int64_t rows, MatrixRows dx, Epilogue epilogue) const;
  // The second one in the calling thread.
  void add_back(MatrixRows dy, std::int64_t rows, MatrixRows dx) const;
  // Adds dy^T x to the sum of W, and the sum of dy to that of b.
  void add(MatrixRows dy, MatrixRows x, std::int64_t rows, ProductScratch& scratch);
  // The sums: {outs, depth}; {outs} or null.
  void write(float* weights, float* bias) const;

 private:
  std::int64_t outs_ = 0, depth_ = 0;
  AlignedBuffer packed_;  // W^T
  PackedMatrix transposed_;
  AlignedBuffer sums_, bias_;  // {outs, padded(depth)}, {padded(outs)}
};

}  // namespace exphil::host
