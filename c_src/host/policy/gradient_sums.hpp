// The gradients of a policy's weights while they are added up: of each product an object of its own, of the
// other weights a place in a row of memory. Used by host/policy/gradient.cpp; one call at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/gradient.hpp"
#include "host/policy/weights.hpp"
#include "host/simd/linear_gradient.hpp"

namespace exphil::host {

struct PhaseSums {
  LinearGradient product;
  PhaseWeights weights;  // places in the row of the block
};

// Every sequence has a row of its own, and the rows are added in the order of the sequences.
struct BlockSums {
  std::vector<PhaseSums> phases;
  std::int64_t floats = 0;  // of a row
  AlignedBuffer totals;     // a row
};

class GradientSums {
 public:
  explicit GradientSums(const core::PolicyWeights& weights);

  std::vector<BlockSums> blocks;
  std::int64_t most_floats = 0;                // of a block's row
  std::int64_t most_outs = 0, most_depth = 0;  // of a product

  // Adds `count` rows, in order, to the totals of a block.
  static void add_rows_of(BlockSums& block, const AlignedBuffer& rows, std::int64_t count);
  // to: zeros_of the network.
  void write(const core::PolicyWeights& weights, core::PolicyValues<float>* to) const;
};

}  // namespace exphil::host
