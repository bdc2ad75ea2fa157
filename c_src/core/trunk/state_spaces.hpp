// Files with the names of state-spaces/mamba and transformers, whatever the mixer: the ends of a policy and
// its numbered layers. Used in core/trunk only; one object per load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/trunk/loading.hpp"

namespace exphil::core {

// What a policy has around its mixers.
struct MixerEnds {
  std::int64_t d_model = 0, d_input = 0, d_output = 0, layers = 0;
  float norm_epsilon = 1e-5f;
  std::string prefix = "backbone.";  // or none
};

// Throws invalid_checkpoint for a tensor of an MLP between the mixers.
void refuse_mlps(const Checkpoint& file);
// Whether a layer's mixer has this tensor.
bool has_mixer_tensor(const TensorMap& tensors, const std::string& name);

class StateSpacesFile {
 public:
  // Both outlive this.
  StateSpacesFile(const Checkpoint& file, const CheckpointReader& reader);

  const std::string& prefix() const { return prefix_; }  // "backbone." or none
  std::string layer_prefix(std::size_t layer) const {
    return prefix_ + "layers." + std::to_string(layer) + ".";
  }

  struct Ends {
    std::int64_t d_model = 0, d_input = 0, d_output = 0;
  };
  Ends ends() const;
  std::int64_t count_layers() const;
  MixerEnds mixer_ends(float norm_epsilon) const;
  // Of so many layers.
  bool any_layer_has(std::int64_t layers, const std::string& tensor) const;
  // Frames of the windows it was trained on, by the option or the metadata; 0 where unknown.
  std::int64_t window(const PolicyLoadOptions& options) const;

 private:
  const Checkpoint& file_;
  const CheckpointReader& reader_;
  const std::string prefix_;
};

// Lists which tensor fills which weight.
class StateSpacesParameters {
 public:
  // A tensor that is one weight, if there is such a weight.
  void add(const std::string& name, const Shape& shape, const char* axes, WeightId weight) {
    if (weight != kNone) list.push_back({name, shape, axes, weight});
  }
  std::vector<PolicyParameter> list;
};

}  // namespace exphil::core
