// A policy's folded matrices as the kernels store their weights (kernels/policy/weights.cuh). Used by the
// packers. Each refers to the Folded that it was made of; immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "core/precision.hpp"
#include "cuda/policy/fold.hpp"

namespace exphil::cuda {

// Value i of a vector; zero outside.
float padded(const std::vector<float>& vector, std::int64_t i);

// The bits of each weight, the scale and the sum of each row. Zeros outside.
class StoredMatrix {
 public:
  StoredMatrix(const FoldedMatrix& matrix, core::Precision precision);

  float scale(std::int64_t row) const { return padded(scales_, row); }
  float sum(std::int64_t row) const;

  // Puts weight (row, k) at element `index` of `to`.
  void store(std::int64_t row, std::int64_t k, unsigned char* to, std::int64_t index) const;

 private:
  const FoldedMatrix* matrix_;
  core::Precision precision_;
  std::vector<float> scales_;
};

// The rows of a product: those of its outputs, each padded, one output after another
// (policy::Network::rows). Zeros in the padding and in any row outside.
class StoredProduct {
 public:
  StoredProduct(const FoldedPhase& phase, const policy::Network& network, const policy::Product& product,
                core::Precision precision);

  float bias(std::int64_t row) const;
  float scale(std::int64_t row) const;
  float sum(std::int64_t row) const;
  void store(std::int64_t row, std::int64_t k, unsigned char* to, std::int64_t index) const;

 private:
  struct Rows {
    std::int64_t first, count;
    StoredMatrix matrix;
    const std::vector<float>* bias;
  };
  const Rows& rows_of(std::int64_t row) const;
  std::vector<Rows> outputs_;
};

}  // namespace exphil::cuda
