#include "host/policy/gradient_forward.hpp"

#include <algorithm>
#include <variant>

#include "core/tensor.hpp"
#include "core/work/parallel.hpp"
#include "host/policy/gradient_gaps.hpp"
#include "host/policy/phase_access.hpp"
#include "host/recurrence/gradient.hpp"
#include "host/simd/thread_scratch.hpp"

namespace exphil::host {

Histories::Histories(const core::Convolution& phase, const SequenceGroup& group, const core::Network& network)
    : place{0, phase.in.size, phase.taps - 1}, all(group.count * place.floats()) {
  for (std::int64_t i = 0; group.all->states != nullptr && i < group.count; ++i)
    place.write(state_part(group.all->states, group, i, network, phase.state), of(i));
}

std::int64_t walked_together(std::int64_t sequences) {
  return std::clamp<std::int64_t>((sequences + core::threads() - 1) / core::threads(), 1, kPieceRows);
}

std::vector<MatrixRows> rows_of_frame(const std::vector<MatrixRows>& at, std::int64_t first, std::int64_t t,
                                      std::int64_t seq) {
  std::vector<MatrixRows> rows = at;
  for (MatrixRows& each : rows) {
    if (each.data != nullptr) each = {each.data + (first * seq + t) * each.step, each.step * seq};
  }
  return rows;
}

GradientRecord::GradientRecord(const PackedWeights& weights, std::int64_t count, std::int64_t seq,
                               bool keeps_states)
    : weights_(weights),
      n_(weights.network()),
      layout_(n_),
      steps_(row_steps(n_)),
      count_(count),
      seq_(seq),
      keeps_states_(keeps_states) {
  place(nullptr);
  if (!keeps_states) {
    memory_ = AlignedBuffer(floats_);
    place(memory_.data());
    return;
  }
  kept_ = KeptBuffer(floats_);
  place(kept_.data());
  for (std::size_t i = 0; i < blocks.size(); ++i) clear_gaps(n_, *blocks_of(n_)[i], blocks[i], count * seq);
}

void GradientRecord::place(float* memory) {
  blocks.clear(), before.clear();
  floats_ = 0;
  const auto take_rows = [&](MatrixRows& rows, std::int64_t count, std::int64_t step) {
    if (rows.step != 0) return;
    rows.step = step;
    if (memory != nullptr) rows.data = memory + floats_;
    const std::int64_t more = padded(core::checked_multiply(count, rows.step, "frames"));
    if (__builtin_add_overflow(floats_, more, &floats_)) core::checked_multiply(INT64_MAX, 2, "frames");
  };
  const auto take = [&](std::vector<MatrixRows>& at, core::VectorId id) {
    take_rows(at[static_cast<std::size_t>(id)], count_ * seq_, steps_[static_cast<std::size_t>(id)]);
  };
  for (const core::Block* block : blocks_of(n_)) {
    std::vector<MatrixRows>& states = before.emplace_back(block->size());
    for (std::size_t i = 0; keeps_states_ && i < block->size(); ++i) {
      const core::Phase& phase = (*block)[i];
      if (const auto* const cell = std::get_if<core::GatedCell>(&phase)) {
        take_rows(states[i], count_ * seq_, layout_.place(cell->state).floats());
      } else if (const auto* const scan = std::get_if<core::SelectiveScan>(&phase)) {
        take_rows(states[i], count_, tiles(seq_) * layout_.place(scan->state).floats());
      }
    }
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
    if (index > 0 && core::writes(block[i]).vector == n_.hidden) {  // the end of a layer
      at[hidden] = blocks[index + 1][hidden];
      if (core::adds(block[i]))
        copy_rows(blocks[index][hidden], at[hidden], group_.rows(), 0, at[hidden].step);
    }
    const std::size_t last = walk_end(block, i);
    if (last > i || std::holds_alternative<core::GatedCell>(block[i])) {
      walk(index, block, i, last, at.data());
      i = last;
    } else if (const auto* const convolution = std::get_if<core::Convolution>(&block[i])) {
      run(*convolution, packed, at.data());
    } else if (const auto* const scan = std::get_if<core::SelectiveScan>(&block[i])) {
      run(*scan, packed, at.data(), before[index][i]);
    } else if (const auto* const heads = std::get_if<core::HeadRecurrence>(&block[i])) {
      run(*heads, packed, at.data());
    } else if (core::state_of(block[i]) != core::kNone) {
      run_sequences(block[i], packed, at.data());
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
  const std::int64_t seq = group_.all->seq, blocks = panels(phase.in.size);
  Histories histories(phase, group_, n_);
  core::parallel_for(group_.count * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    each_sequence_run(blocks, begin, end, [&](std::int64_t i, std::int64_t first, std::int64_t last) {
      Convolution convolution = convolution_of(phase, packed, at, i * seq, seq);
      convolution.history = histories.of(i);
      convolve(convolution, first, last);
    });
  });
  for (std::int64_t i = 0; final_states_ != nullptr && i < group_.count; ++i)
    histories.place.read(histories.of(i), state_part(final_states_, group_, i, n_, phase.state));
}

void GradientRecord::run(const core::SelectiveScan& phase, const PackedPhase& packed, const MatrixRows* at,
                         const MatrixRows& checkpoints) const {
  const std::int64_t seq = group_.all->seq, blocks = panels(phase.x.size);
  const std::int64_t length = group_.all->length(weights_.config());
  core::parallel_for(group_.count * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    float* scratch = thread_scratch(Scratch::scan, scan_scratch_floats(packed.rule));
    each_sequence_run(blocks, begin, end, [&](std::int64_t i, std::int64_t first, std::int64_t last) {
      ScanSequence scan = scan_of(phase, packed, at, i * seq, seq, length);
      scan.initial_state = state_part(group_.all->states, group_, i, n_, phase.state);
      scan.final_state = state_part(final_states_, group_, i, n_, phase.state);
      if (checkpoints.data != nullptr) {
        scan.checkpoints =
            checkpoints.data + i * checkpoints.step + first * tiles(seq) * packed.rule.state_block();
      }
      scan_channels(packed.rule, scan, first, last, scratch);
    });
  });
}

// Head by head of each sequence.
void GradientRecord::run(const core::HeadRecurrence& phase, const PackedPhase& packed,
                         const MatrixRows* at) const {
  const std::int64_t seq = group_.all->seq, count = phase.heads(), channels = phase.channels();
  const PanelPlace place{0, phase.keys(), channels, false, true};
  core::parallel_for(group_.count * count, 1, [&](std::int64_t begin, std::int64_t end) {
    AlignedBuffer states(place.floats());
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t sequence = i / count, row = i % count * channels;
      std::fill_n(states.data(), place.floats(), 0.0f);
      const float* const given = state_part(group_.all->states, group_, sequence, n_, phase.state);
      if (given != nullptr) place.write(given + row * phase.keys(), states.data());
      HeadRows heads = heads_of(phase, packed, at, sequence * seq, seq);
      heads.from = heads.states = states.data();
      advance_heads(heads, row, row + channels);
      float* const to = state_part(final_states_, group_, sequence, n_, phase.state);
      if (to != nullptr) place.read(states.data(), to + row * phase.keys());
    }
  });
}

// A delay or angles: every sequence as a pass of its own.
void GradientRecord::run_sequences(const core::Phase& phase, const PackedPhase& packed,
                                   const MatrixRows* at) const {
  const std::int64_t seq = group_.all->seq, length = group_.all->length(weights_.config());
  const core::StateId id = core::state_of(phase);
  const PanelPlace& place = layout_.place(id);
  core::parallel_for(group_.count, 1, [&](std::int64_t begin, std::int64_t end) {
    const KeptBuffer memory(layout_.floats());
    float* const state = memory.data();
    for (std::int64_t i = begin; i < end; ++i) {
      layout_.reset(state, id);
      const float* const given = state_part(group_.all->states, group_, i, n_, id);
      if (given != nullptr) place.write(given, state);
      const PassRows one{&state, nullptr, 1, seq, length};
      runner_of(phase)(phase, packed, {one, layout_, at}, {i * seq, seq, 0, panels_of(phase)});
      float* const to = state_part(final_states_, group_, i, n_, id);
      if (to != nullptr) place.read(state, to);
    }
  });
}

// Phases [first, last], for some sequences at once in each thread.
void GradientRecord::walk(std::size_t index, const core::Block& block, std::size_t first, std::size_t last,
                          const MatrixRows* at) const {
  const std::vector<MatrixRows> rows(at, at + n_.vectors.size());
  core::parallel_for(group_.count, walked_together(group_.count), [&](std::int64_t begin, std::int64_t end) {
    walk(index, block, first, last, rows, {group_.all, begin, end - begin});
  });
}

// part.first: in the group.
void GradientRecord::walk(std::size_t index, const core::Block& block, std::size_t first, std::size_t last,
                          const std::vector<MatrixRows>& at, const SequenceGroup& part) const {
  const std::int64_t seq = part.all->seq, floats = padded(layout_.floats());
  AlignedBuffer memory(part.count * floats);
  std::vector<float*> states;
  for (std::int64_t i = 0; i < part.count; ++i) {
    states.push_back(memory.data() + i * floats);
    layout_.reset(states.back());
    const float* const given = state_part(part.all->states, group_, part.first + i, n_, 0);
    if (given != nullptr) layout_.write(given, states.back());
  }
  const PassRows one{states.data(), nullptr, part.count, 1, part.all->length(weights_.config())};
  for (std::int64_t t = 0; t < seq; ++t) {
    const std::vector<MatrixRows> rows = rows_of_frame(at, part.first, t, seq);
    for (std::size_t i = first; i <= last; ++i) {
      const MatrixRows kept = before[index][i];
      const core::StateId id = core::state_of(block[i]);
      for (std::int64_t s = 0; kept.data != nullptr && s < part.count; ++s) {
        std::copy_n(states[static_cast<std::size_t>(s)] + layout_.place(id).at, kept.step,
                    kept.data + ((part.first + s) * seq + t) * kept.step);
      }
      runner_of(block[i])(block[i], weights_.blocks()[index][i], {one, layout_, rows.data()},
                          {0, part.count, 0, panels(core::writes(block[i]).size)});
    }
  }
  for (std::size_t i = first; i <= last; ++i) {
    const core::StateId id = core::state_of(block[i]);
    if (id == core::kNone) continue;
    for (std::int64_t s = 0; s < part.count; ++s) {
      float* const to = state_part(final_states_, group_, part.first + s, n_, id);
      if (to != nullptr) layout_.place(id).read(states[static_cast<std::size_t>(s)], to);
    }
  }
}

}  // namespace exphil::host
