// A policy's folded matrices as the kernels store their weights (kernels/policy/weights.cuh). Used by
// cuda/policy/pack.cpp. Each refers to the Folded that it was made of; immutable.
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

struct StoredLayer {
  StoredLayer(const FoldedLayer& layer, core::Precision precision);
  StoredMatrix in_proj, x_proj, dt_proj, out_proj;
};

struct StoredPolicy {
  StoredPolicy(const Folded& folded, core::Precision precision);
  StoredMatrix input, hidden, head;
  std::vector<StoredLayer> layers;
};

}  // namespace exphil::cuda
