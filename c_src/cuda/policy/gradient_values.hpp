// A policy's values as its gradient uses them on the device: every weight of the network in one piece of
// memory, as it is, without padding or folding, and the states of a new agent that are not zeros. The weights
// and their gradient have the same layout. Used by
// cuda/policy/gradient.cpp. Immutable; safe to share while the PolicyWeights exist.
#pragma once

#include <cstddef>
#include <vector>

#include "core/policy/config.hpp"
#include "cuda/device/places.hpp"
#include "cuda/device/upload.hpp"

namespace exphil::cuda {

class GradientValues {
 public:
  // Keeps a reference to the weights.
  explicit GradientValues(const core::PolicyWeights& weights);

  std::size_t bytes() const { return places_.bytes(); }
  const core::Network& network() const { return weights_.network(); }
  std::size_t place(core::WeightId id) const { return place_[static_cast<std::size_t>(id)]; }
  // The address of a weight in a piece of memory; null where it is absent.
  float* in(CUdeviceptr memory, core::WeightId id) const;
  // That of a new agent's state part; null where it is zeros.
  const float* initial_in(CUdeviceptr memory, core::StateId id) const;

  // The host tensors of an upload of the weights and initial states.
  std::vector<ImageSegment> segments() const;
  // The same of other values of the weights, without states.
  std::vector<ImageSegment> segments(const core::PolicyValues<float>& values) const;
  // A gradient of this layout, in host memory.
  void copy_out(const std::byte* from, core::PolicyValues<float>* to) const;

 private:
  const core::PolicyWeights& weights_;
  std::vector<std::size_t> place_, initial_;  // of each weight, of each state part
  Places places_;
};

}  // namespace exphil::cuda
