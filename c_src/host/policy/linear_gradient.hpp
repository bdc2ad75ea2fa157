// The gradient of one linear layer y = x W^T + b over many rows: that of x, and sums over the rows for W and
// b. Every element is added up by one thread in the order of the rows, so any number of threads gives the
// same bits. Used by host/policy/gradient.cpp; one call at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "host/simd/aligned.hpp"
#include "host/simd/matmul.hpp"

namespace exphil::host {

// Rows of a linear layer's input or output: `step` floats from one to the next, padding included.
struct GradientRows {
  const float* data = nullptr;
  std::int64_t step = 0;
};

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
  std::int64_t outs() const { return outs_; }
  std::int64_t depth() const { return depth_; }

  // dx = dy W, or dx += dy W; dx has padded(depth) floats a row.
  void back(GradientRows dy, std::int64_t rows, MatrixRows dx, Epilogue epilogue) const;
  // Adds dy^T x to the sum of W, and the sum of dy to that of b.
  void add(GradientRows dy, GradientRows x, std::int64_t rows, ProductScratch& scratch);
  // The sums: {outs, depth}; {outs}, or nothing where it is empty.
  void write(float* weights, std::vector<float>& bias) const;
  float weight_at(std::int64_t out, std::int64_t k) const { return sums_.data()[out * padded(depth_) + k]; }
  float bias_at(std::int64_t out) const { return bias_.data()[out]; }

 private:
  std::int64_t outs_ = 0, depth_ = 0;
  AlignedBuffer packed_;  // W^T
  PackedMatrix transposed_;
  AlignedBuffer sums_, bias_;  // {outs, padded(depth)}, {padded(outs)}
};

}  // namespace exphil::host
