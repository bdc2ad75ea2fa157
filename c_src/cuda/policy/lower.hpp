// From a policy's network (core/policy/network.hpp) to the one that the kernels run
// (kernels/policy/network.cuh), and which weights and states each of its phases has. Pure functions;
// immutable values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/policy/config.hpp"
#include "kernels/policy/network.cuh"

namespace exphil::cuda {

// The rows of one output of a product: rows [first_row, first_row + rows) of the weight.
struct LoweredRows {
  core::WeightId weight = core::kNone, bias = core::kNone;  // no weight: the identity
  std::int64_t first_row = 0, rows = 0;
  core::WeightId activation_bias = core::kNone;  // added as well: {rows}
};

// The weights and the state of a lowered phase in one of its blocks. Of a product:
struct LoweredPhase {
  policy::Phase phase;
  std::vector<LoweredRows> outputs;
  std::int64_t columns = 0;
  core::WeightId norm = core::kNone, norm_bias = core::kNone;
  // The bias of what it reads: rows [first_row, first_row + rows) of `bias`. It goes through the product, and
  // the product that writes it has no bias there.
  LoweredRows input_bias;
  // Of a convolution {channels, taps} and {channels}, of a scan and of a recurrence over heads A and D, of a
  // gate the weight of its norm, of a rotation its bias and the weight of its norm.
  core::WeightId matrix = core::kNone, vector = core::kNone;
  // Of a recurrence over heads and of a gate with ranks, {heads, ranks channels} each.
  std::vector<core::WeightId> scales;
  // The convolution's first channel among those of its weights and its state.
  std::int64_t first_channel = 0;
  core::StateId state = core::kNone;
};
using LoweredBlock = std::vector<LoweredPhase>;

struct Lowered {
  policy::Network network;
  LoweredBlock input;
  std::vector<LoweredBlock> layers;
  LoweredBlock output;
};

// Throws limit_exceeded, and unsupported where the kernels have no phase for what the network does.
Lowered lower(const core::PolicyConfig& config);

// The value of the define NETWORK.
std::string text_of(const policy::Network& network);

}  // namespace exphil::cuda
