// A policy's weights in the CPU's layout: one arena of panels, in the order in which a step reads them.
// Immutable after construction; safe to share.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/config.hpp"
#include "host/policy/layer_kernels.hpp"
#include "host/recurrence/sequence.hpp"
#include "host/simd/aligned.hpp"
#include "host/simd/matmul.hpp"

namespace exphil::host {

// What a phase has beside its vectors; the fields of other kinds of phases stay empty. Vectors that a kernel
// always reads are zeros where the policy has none.
struct PackedPhase {
  PackedMatrix matrix;          // Product: its rows of the weight
  Norm norm;                    // Norm
  const float* taps = nullptr;  // Convolution: {taps, padded(channels)}
  // {padded(n)}: of a Convolution and a Softplus; of a SelectiveScan that activates dt, else null.
  const float* bias = nullptr;
  // SelectiveScan: a by pack_a, its bounds, and {padded(channels)}, null where the policy has no skip.
  const float *a = nullptr, *a_bounds = nullptr, *d = nullptr;
  ScanRule rule;
};

class PackedWeights {
 public:
  explicit PackedWeights(const core::PolicyWeights& weights);
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  const core::PolicyConfig& config() const { return config_; }
  const core::Network& network() const { return config_.network; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  std::size_t bytes() const { return arena_.bytes(); }
  // Of the input block, each layer and the output block: for each phase of the network, in its order.
  const std::vector<std::vector<PackedPhase>>& blocks() const { return blocks_; }

 private:
  core::PolicyConfig config_;
  std::uint64_t fingerprint_;
  AlignedBuffer arena_;
  std::vector<std::vector<PackedPhase>> blocks_;
};

// The blocks of a network in the order of PackedWeights::blocks().
std::vector<const core::Block*> blocks_of(const core::Network& network);

ScanRule scan_rule_of(const core::SelectiveScan& scan);

}  // namespace exphil::host
