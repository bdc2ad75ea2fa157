// A policy's weights in the CPU's layout: one arena of panels, in the order in which a step reads them.
// Immutable after construction; safe to share.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/policy/config.hpp"
#include "host/policy/panel_place.hpp"
#include "host/recurrence/sequence.hpp"
#include "host/simd/aligned.hpp"
#include "host/simd/matmul.hpp"

namespace exphil::host {

// Weights of a phase that no matrix product reads.
struct PhaseWeight {
  core::WeightId id = core::kNone;
  // As the phase's kernel reads them; zeros where the policy has none. Without rows the kernel reads nothing.
  PanelPlace place;
};
// Norm: weight, bias of a LayerNorm. Convolution: taps {taps, padded(channels)}, bias. Softplus: bias.
// SelectiveScan: a, bias where it activates dt, d where the policy has it. HeadRecurrence: a, the factors of
// ranks in the bias' place, and d, where the policy has them. Rotation: its bias. RankScale: its weight.
enum PhaseWeightName { kWeight, kBias, kSkip };
using PhaseWeights = std::array<PhaseWeight, 3>;
PhaseWeights phase_weights(const core::Phase& phase);

// What a phase has beside its vectors; what its kind does not have is null.
struct PackedPhase {
  PackedMatrix matrix;                    // Product: its rows of the weight
  std::array<const float*, 3> weights{};  // by PhaseWeightName; a SelectiveScan's a by pack_a
  const float* a_bounds = nullptr;
  ScanRule rule;  // SelectiveScan
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
