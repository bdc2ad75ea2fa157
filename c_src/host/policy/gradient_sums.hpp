// The gradients of a policy's weights while they are added up: one object for each linear layer, and for the
// other vectors of a layer one row of memory. Used by host/policy/gradient.cpp; one call at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/gradient.hpp"
#include "host/policy/linear_gradient.hpp"
#include "host/policy/weights.hpp"

namespace exphil::host {

// The vectors of a layer that no matrix product adds up, in one row: every sequence has a row of its own, and
// the rows are added in the order of the sequences.
struct LayerVectors {
  explicit LayerVectors(const core::PolicyConfig& config);
  float* norm(float* row) const { return row; }
  float* norm_bias(float* row) const { return row + model; }
  float* conv(float* row) const { return row + 2 * model; }  // {d_conv, inner}
  float* conv_bias(float* row) const { return conv(row) + taps * inner; }
  float* d(float* row) const { return conv_bias(row) + inner; }
  float* a(float* row) const { return d(row) + inner; }  // {blocks, d_state, kPanel}
  std::int64_t model, inner, taps, floats;
};

class GradientSums {
 public:
  GradientSums(const core::PolicyWeights& weights);

  struct Layer {
    LinearGradient in_x, in_z, x_proj, dt_proj, out_proj;
    AlignedBuffer vectors;  // LayerVectors
  };
  LinearGradient input_proj, heads_hidden, head;
  std::vector<Layer> layers;
  AlignedBuffer final_vectors;  // LayerVectors, of which norm_f uses norm and norm_bias
  const LayerVectors vectors;

  // Adds `count` rows, in order, to the totals.
  void add_vectors(const AlignedBuffer& rows, std::int64_t count, AlignedBuffer* totals) const;
  std::int64_t most_outs() const;
  std::int64_t most_depth() const;
  // to: zeros_like the weights.
  void write(const core::PolicyWeights& weights, core::PolicyValues<float>* to) const;

 private:
  void write_layer(const core::PolicyConfig& config, std::size_t index,
                   const core::PolicyLayerWeights& weights, core::PolicyLayerValues<float>* to) const;
};

}  // namespace exphil::host
