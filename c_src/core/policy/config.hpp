// What a policy is, apart from its numbers, and the numbers. Both are made from a checkpoint by a trunk
// (core/trunk/load.hpp). Immutable then; safe to share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/policy/network.hpp"
#include "core/policy/parameters.hpp"
#include "core/precision.hpp"

namespace exphil::core {

// Outputs [first, first + count) of one named head.
struct OutputGroup {
  std::string name;
  std::int64_t first = 0, count = 0;
  bool binary = false;  // separate events, not one choice among them
};

// The bytes of a tensor that is not trained.
struct ConstantTensor {
  std::string name;
  Dtype dtype = Dtype::f32;
  Shape shape;
  std::string bytes;
};

// A size or an option that the trunk tells about itself: nothing, a number or a name.
using Fact = std::variant<std::monostate, std::int64_t, double, std::string>;

struct PolicyConfig {
  std::string trunk;  // "mamba1"
  std::int64_t d_input = 0, d_output = 0;
  Network network;
  std::int64_t products = 0;             // multiplications of weights for one frame: core::products_of
  std::int64_t window = 0;               // frames of the windows it was trained on; 0 where unknown
  Precision precision = Precision::f32;  // of the matrices
  Precision states = Precision::f32;     // f32, f16 or bf16: core::with_states
  std::vector<OutputGroup> groups;       // of named heads; empty where the outputs have no names
  std::vector<std::pair<std::string, Fact>> facts;  // "d_model", "dialect", ...
  // What affects a state beside the tensors, for the fingerprint.
  std::vector<std::string> identity;
  // Tensors of the checkpoint that are no parameters, such as a random key, saved as they are.
  std::vector<ConstantTensor> constants;
  // Numbers that tell a state of this policy from one of other sizes, in exported states.
  std::array<std::int64_t, 4> state_signature{};

  std::int64_t n_layer() const { return static_cast<std::int64_t>(network.layers.size()); }
  std::int64_t state_floats() const { return network.state_floats(); }
};

struct PolicyWeights {
  PolicyConfig config;
  PolicyValues<float> values;  // of each weight of the network
  // Hash of every tensor's name, dtype, shape and bytes, and of what else affects a state. Ties states to the
  // policy.
  std::uint64_t fingerprint = 0;
  // The checkpoint's tensors, in the order in which they were read.
  std::vector<PolicyParameter> parameters;

  const Network& network() const { return config.network; }
};

}  // namespace exphil::core
