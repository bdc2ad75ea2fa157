// The gradients of a policy's weights while they are added up: of each phase one object for its product, and
// for the vectors that no matrix product adds up a part of a row of memory. Used by host/policy/gradient.cpp;
// one call at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/gradient.hpp"
#include "host/policy/linear_gradient.hpp"
#include "host/policy/weights.hpp"

namespace exphil::host {

// Where a phase has its vectors in the row of its block. Norm: weight, bias {padded(n)} each; Convolution:
// taps {taps, padded(channels)}, bias; SelectiveScan: d {padded(channels)}, then a as panels. Every sequence
// has a row of its own, and the rows are added in the order of the sequences.
struct PhaseSums {
  LinearGradient product;
  std::int64_t first = 0, second = 0;  // floats in the row
  AlignedBuffer bias;                  // {padded(n)}: of a Softplus and of a scan that activates dt
};

struct BlockSums {
  std::vector<PhaseSums> phases;
  std::int64_t floats = 0;  // of a row
  AlignedBuffer totals;     // a row
};

class GradientSums {
 public:
  explicit GradientSums(const core::PolicyWeights& weights);

  std::vector<BlockSums> blocks;
  std::int64_t most_floats() const;  // of a block's row
  std::int64_t most_outs() const;    // of a product
  std::int64_t most_depth() const;

  // Adds `count` rows, in order, to the totals of a block.
  static void add_rows_of(BlockSums& block, const AlignedBuffer& rows, std::int64_t count);
  // to: zeros_of the network.
  void write(const core::PolicyWeights& weights, core::PolicyValues<float>* to) const;
};

}  // namespace exphil::host
