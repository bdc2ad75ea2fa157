// The forward half of host/policy/gradient.cpp: the rows of every vector of every block, for some sequences.
// Padding of rows stays zero. One call at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/optional_array.hpp"
#include "core/policy/gradient.hpp"
#include "host/policy/phases.hpp"
#include "host/simd/aligned.hpp"
#include "host/simd/kept_buffer.hpp"
#include "host/simd/linear_gradient.hpp"

namespace exphil::host {

// Sequences [first, first + count) of a call.
struct SequenceGroup {
  const core::PolicySequences* all = nullptr;
  std::int64_t first = 0, count = 0;
  std::int64_t rows() const { return count * all->seq; }
};

class GradientRecord {
 public:
  // Room for `count` sequences of `seq` rows. keeps_states: fills `before`, for a backward pass.
  GradientRecord(const PackedWeights& weights, std::int64_t count, std::int64_t seq, bool keeps_states);

  // Fills the blocks, and the outputs and states that are asked for.
  void run(const SequenceGroup& group, const core::PolicyGradOutputs& outputs);

  // Of each block, in the order of PackedWeights::blocks(), the rows of each vector that it reads or writes.
  // hidden: before the block; of the input block, after it.
  std::vector<std::vector<MatrixRows>> blocks;
  // Of each block and each of its phases, for the backward pass: the states of a cell before each row,
  // {states, padded(units)}; of a scan a row for each sequence, ScanSequence::checkpoints of all its
  // channels.
  std::vector<std::vector<MatrixRows>> before;

 private:
  // Without memory it only counts the floats.
  void place(float* memory);
  void run_block(std::size_t index, const core::Block& block);
  void run(const core::Phase& phase, const PackedPhase& packed, const MatrixRows* at) const;
  void run(const core::Convolution& phase, const PackedPhase& packed, const MatrixRows* at) const;
  void run(const core::SelectiveScan& phase, const PackedPhase& packed, const MatrixRows* at,
           const MatrixRows& checkpoints) const;
  void run(const core::HeadRecurrence& phase, const PackedPhase& packed, const MatrixRows* at) const;
  void run_sequences(const core::Phase& phase, const PackedPhase& packed, const MatrixRows* at) const;
  void walk(std::size_t index, const core::Block& block, std::size_t first, std::size_t last,
            const MatrixRows* at) const;
  void walk(std::size_t index, const core::Block& block, std::size_t first, std::size_t last,
            const std::vector<MatrixRows>& at, const SequenceGroup& part) const;

  const PackedWeights& weights_;
  const core::Network& n_;
  const StateLayout layout_;
  const std::vector<std::int64_t> steps_;
  const std::int64_t count_, seq_;
  const bool keeps_states_;
  std::int64_t floats_ = 0;
  KeptBuffer kept_;       // with a backward pass
  AlignedBuffer memory_;  // without one
  SequenceGroup group_;
  float* final_states_ = nullptr;
};

// Where a part of the state of a group's sequence begins in a call's {batch, state_floats}; null where that
// is.
template <class Float>
Float* state_part(Float* states, const SequenceGroup& group, std::int64_t sequence,
                  const core::Network& network, core::StateId id) {
  return core::advanced(states, (group.first + sequence) * network.state_floats() + network.state_at(id));
}

// Sequences that a thread walks together: as many for each, so that a weight is read once for several.
std::int64_t walked_together(std::int64_t sequences);

// Row t of each sequence from `first` on, as rows of their own.
std::vector<MatrixRows> rows_of_frame(const std::vector<MatrixRows>& at, std::int64_t first, std::int64_t t,
                                      std::int64_t seq);

// The inputs before the first row of each sequence of a group, as convolve() takes them.
struct Histories {
  Histories(const core::Convolution& phase, const SequenceGroup& group, const core::Network& network);
  float* of(std::int64_t sequence) { return all.data() + sequence * place.floats(); }
  const PanelPlace place;
  AlignedBuffer all;
};

// Calls body(sequence, first, last) for parts [begin, end) of all sequences, which have `parts` each, in runs
// of one sequence. So one sequence alone is also work for several threads.
template <class Body>
void each_sequence_run(std::int64_t parts, std::int64_t begin, std::int64_t end, const Body& body) {
  while (begin < end) {
    const std::int64_t sequence = begin / parts, first = begin % parts;
    const std::int64_t last = std::min(parts, first + end - begin);
    body(sequence, first, last);
    begin += last - first;
  }
}

}  // namespace exphil::host
