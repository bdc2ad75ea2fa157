// A policy's values as its gradient uses them on the device: every vector of core::PolicyValues in one piece
// of memory, as it is, without padding or folding. The weights and their gradient have the same layout. Used
// by cuda/policy/gradient.cpp. Immutable; safe to share while the PolicyWeights exist.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/policy/config.hpp"
#include "cuda/device/upload.hpp"

namespace exphil::cuda {

class GradientValues {
 public:
  // Keeps a reference to the weights.
  explicit GradientValues(const core::PolicyWeights& weights);

  std::size_t bytes() const { return bytes_; }
  const core::PolicyWeights& weights() const { return weights_; }
  // Whether the vector, one of the weights', has values.
  static bool has(const std::vector<float>& vector) { return !vector.empty(); }
  // Its address in a piece of memory; null where it has no values. The hidden layers of all two-layer heads
  // follow each other without gaps, and so do their biases: they are one matrix.
  float* in(CUdeviceptr memory, const std::vector<float>& vector) const;

  // The host tensors of an upload of the weights.
  std::vector<ImageSegment> segments() const;
  // A gradient of this layout, in host memory.
  void copy_out(const char* from, core::PolicyValues<float>* to) const;

 private:
  void place(const std::vector<float>& vector, bool joins_previous = false);

  const core::PolicyWeights& weights_;
  std::unordered_map<const std::vector<float>*, std::size_t> places_;  // bytes
  std::size_t bytes_ = 0;
};

}  // namespace exphil::cuda
