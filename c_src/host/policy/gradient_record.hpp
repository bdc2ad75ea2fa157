// Rows that the gradient of a policy works on: of every vector of every block what the forward pass leaves,
// and of every vector its gradient. Used by host/policy/gradient.cpp and gradient_forward.cpp. Padding of
// rows stays zero.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/gradient.hpp"
#include "host/policy/weights.hpp"
#include "host/simd/aligned.hpp"
#include "host/simd/matmul.hpp"

namespace exphil::host {

// Rows in one piece of a thread.
inline constexpr std::int64_t kPieceRows = 48;

// Of each vector, the floats from one row to the next. Means lie close together, as a scan's input_dt is
// read; all others have room for the whole panels that a product writes.
std::vector<std::int64_t> row_steps(const core::Network& network);

// Sequences [first, first + count) of a call.
struct SequenceGroup {
  const core::PolicySequences* all = nullptr;
  std::int64_t first = 0, count = 0;
  std::int64_t rows() const { return count * all->seq; }
};

// What one block of the forward pass leaves.
struct BlockRecord {
  std::vector<MatrixRows> at;  // of each vector the block reads or writes; hidden: before the block
  // Of each phase with a convolution: its inputs before the first row, {count, taps - 1, padded(channels)}.
  std::vector<float*> history;
};

class GradientRecord {
 public:
  // Room for `count` sequences of `seq` rows.
  GradientRecord(const PackedWeights& weights, std::int64_t count, std::int64_t seq);

  std::vector<BlockRecord> blocks;  // in the order of PackedWeights::blocks()
  // hidden after block i, which is that before the next.
  const MatrixRows& hidden_after(std::size_t i) const;

 private:
  const core::VectorId hidden_;
  AlignedBuffer memory_;
};

// Fills the record, and the outputs and states that are asked for.
void record_forward(const PackedWeights& weights, const SequenceGroup& group,
                    const core::PolicyGradOutputs& outputs, GradientRecord& record);

// A phase of a block and its weights, as the forward pass ran it for one sequence of the group.
struct RecordedPhase {
  const PackedPhase& packed;
  const BlockRecord& block;
  const SequenceGroup& group;
  const core::Network& network;
  std::size_t index = 0;  // in the block
  std::int64_t sequence = 0;

  // Rows of the sequence.
  MatrixRows rows(const core::Span& span) const;
  // Of the whole call: the state of this sequence, in an array {batch, state_floats}; null where that is.
  template <class Float>
  Float* state(Float* all, core::StateId id) const {
    if (all == nullptr) return nullptr;
    return all + (group.first + sequence) * network.state_floats() + network.state_at(id);
  }
};
// Without results.
ScanSequence recorded_scan(const core::SelectiveScan& scan, const RecordedPhase& phase, std::int64_t length);
// `history` is that of the sequence, which convolve() would overwrite.
Convolution recorded_convolution(const core::Convolution& convolution, const RecordedPhase& phase);

}  // namespace exphil::host
