#include "host/policy/gradient_forward.hpp"

#include <variant>

#include "core/tensor.hpp"
#include "core/work/parallel.hpp"
#include "host/policy/phase_access.hpp"
#include "host/recurrence/gradient.hpp"
#include "host/simd/thread_scratch.hpp"

namespace exphil::host {

namespace {

PanelPlace history_place(const core::Convolution& phase) {
  return {0, phase.in.size, phase.taps - 1};
}

}  // namespace

AlignedBuffer history_of(const core::Convolution& phase, const SequenceGroup& group, std::int64_t sequence,
                         const core::Network& network) {
  AlignedBuffer history(history_place(phase).floats());
  const float* given = state_part(group.all->states, group, sequence, network, phase.state);
  if (given != nullptr) history_place(phase).write(given, history.data());
  return history;
}

GradientRecord::GradientRecord(const PackedWeights& weights, std::int64_t count, std::int64_t seq)
    : weights_(weights), n_(weights.network()), layout_(n_), steps_(row_steps(n_)), rows_(count * seq) {
  place(nullptr);
  memory_ = AlignedBuffer(floats_);
  place(memory_.data());
}

void GradientRecord::place(float* memory) {
  blocks.clear();
  floats_ = 0;
  const auto take = [&](std::vector<MatrixRows>& at, core::VectorId id) {
    MatrixRows& rows = at[static_cast<std::size_t>(id)];
    if (rows.step != 0) return;
    rows.step = steps_[static_cast<std::size_t>(id)];
    if (memory != nullptr) rows.data = memory + floats_;
    const std::int64_t more = padded(core::checked_multiply(rows_, rows.step, "frames"));
    if (__builtin_add_overflow(floats_, more, &floats_)) core::checked_multiply(INT64_MAX, 2, "frames");
  };
  for (const core::Block* block : blocks_of(n_)) {
    std::vector<MatrixRows>& at = blocks.emplace_back(n_.vectors.size());
    if (blocks.size() > 1) take(at, n_.hidden);
    for (const core::Phase& phase : *block) {
      if (core::writes(phase).vector != n_.hidden) take(at, core::writes(phase).vector);
    }
  }
  const auto hidden = static_cast<std::size_t>(n_.hidden);
  blocks[0][hidden] = blocks[1][hidden];
}

void GradientRecord::run(const SequenceGroup& group, const core::PolicyGradOutputs& outputs) {
  group_ = group;
  final_states_ = outputs.states;
  const std::int64_t d_input = n_.size_of(n_.frame), d_output = n_.size_of(n_.outs);
  const std::int64_t first = group.first * group.all->seq;
  const float* frames = group.all->frames + first * d_input;
  blocks.front()[static_cast<std::size_t>(n_.frame)] = {const_cast<float*>(frames), d_input};  // is only read
  const std::vector<const core::Block*> all = blocks_of(n_);
  for (std::size_t i = 0; i < all.size(); ++i) run_block(i, *all[i]);
  if (outputs.outs == nullptr) return;
  copy_rows(blocks.back()[static_cast<std::size_t>(n_.outs)], {outputs.outs + first * d_output, d_output},
            group.rows(), 0, d_output);
}

void GradientRecord::run_block(std::size_t index, const core::Block& block) {
  std::vector<MatrixRows> at = blocks[index];
  const auto hidden = static_cast<std::size_t>(n_.hidden);
  for (std::size_t i = 0; i < block.size(); ++i) {
    const PackedPhase& packed = weights_.blocks()[index][i];
    if (index > 0 && core::writes(block[i]).vector == n_.hidden) {  // the residual of a layer
      at[hidden] = blocks[index + 1][hidden];
      copy_rows(blocks[index][hidden], at[hidden], group_.rows(), 0, at[hidden].step);
    }
    if (const auto* const convolution = std::get_if<core::Convolution>(&block[i])) {
      run(*convolution, packed, at.data());
    } else if (const auto* const scan = std::get_if<core::SelectiveScan>(&block[i])) {
      run(*scan, packed, at.data());
    } else {
      run(block[i], packed, at.data());
    }
  }
}

// A phase without a state: it does not matter where a sequence ends.
void GradientRecord::run(const core::Phase& phase, const PackedPhase& packed, const MatrixRows* at) const {
  const PassRows none;
  const RunPhase run_phase = runner_of(phase);
  core::parallel_for(group_.rows(), kPieceRows, [&](std::int64_t begin, std::int64_t end) {
    run_phase(phase, packed, {none, layout_, at}, {begin, end - begin, 0, panels(core::writes(phase).size)});
  });
}

void GradientRecord::run(const core::Convolution& phase, const PackedPhase& packed,
                         const MatrixRows* at) const {
  const std::int64_t seq = group_.all->seq;
  core::parallel_for(group_.count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      AlignedBuffer history = history_of(phase, group_, i, n_);
      Convolution convolution = convolution_of(phase, packed, at, i * seq, seq);
      convolution.history = history.data();
      convolve(convolution, 0, panels(phase.in.size));
      float* const to = state_part(final_states_, group_, i, n_, phase.state);
      if (to != nullptr) history_place(phase).read(history.data(), to);
    }
  });
}

void GradientRecord::run(const core::SelectiveScan& phase, const PackedPhase& packed,
                         const MatrixRows* at) const {
  const std::int64_t seq = group_.all->seq, parts = parts_of(phase.x.size), blocks = panels(phase.x.size);
  const std::int64_t length = group_.all->length(weights_.config());
  core::parallel_for(group_.count * parts, 1, [&](std::int64_t begin, std::int64_t end) {
    float* scratch = thread_scratch(Scratch::scan, scan_scratch_floats(packed.rule));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t sequence = i / parts, first = i % parts * kPartBlocks;
      ScanSequence scan = scan_of(phase, packed, at, sequence * seq, seq, length);
      scan.initial_state = state_part(group_.all->states, group_, sequence, n_, phase.state);
      scan.final_state = state_part(final_states_, group_, sequence, n_, phase.state);
      scan_channels(packed.rule, scan, first, std::min(first + kPartBlocks, blocks), scratch);
    }
  });
}

}  // namespace exphil::host
