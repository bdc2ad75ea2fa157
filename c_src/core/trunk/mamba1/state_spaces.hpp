// The tensors of a Mamba policy by state-spaces' names: one list, by which a checkpoint is read
// (state_spaces.cpp) and fresh weights are made (initial.cpp).
#pragma once

#include <string>
#include <vector>

#include "core/trunk/mamba1/mamba1.hpp"

namespace exphil::core::mamba1 {

// How a tensor begins where nothing was trained yet.
enum class Start {
  zeros,
  ones,
  uniform,   // by fan-in
  residual,  // the same, smaller the more layers add to the hidden vector
  dt_bias,
  counts  // log(1), log(2), ... in each row
};

struct NamedTensor {
  std::string name;
  Shape shape;
  const char* axes;
  Values* values;  // where it belongs in the weights
  Start start;
  std::int64_t fan_in = 0;
};

// What differs between checkpoints with these names.
struct Naming {
  std::string prefix = "backbone.";  // of layers and norm_f
  bool projection_bias = false, conv_bias = true;
};

// In the order of a forward pass. The config of `weights` and the number of its layers must be set.
std::vector<NamedTensor> state_spaces_tensors(Weights* weights, const Naming& naming);

}  // namespace exphil::core::mamba1
