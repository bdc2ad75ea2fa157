// The forward half of host/policy/gradient.cpp: a loop over phases that keeps the rows of every vector.
#include <algorithm>

#include "core/tensor.hpp"
#include "core/work/parallel.hpp"
#include "host/policy/gradient_record.hpp"
#include "host/recurrence/gradient.hpp"
#include "host/simd/thread_scratch.hpp"

namespace exphil::host {

namespace {

class Forward {
 public:
  Forward(const PackedWeights& weights, const SequenceGroup& group, const core::PolicyGradOutputs& outputs,
          GradientRecord& record)
      : w_(weights),
        n_(weights.network()),
        group_(group),
        out_(outputs),
        r_(record),
        rows_(group.rows()),
        length_(group.all->length(weights.config())) {}

  void run() {
    const std::vector<const core::Block*> blocks = blocks_of(n_);
    const float* frames = group_.all->frames + group_.first * seq() * n_.size_of(n_.frame);
    r_.blocks.front().at[static_cast<std::size_t>(n_.frame)] = {const_cast<float*>(frames),
                                                                n_.size_of(n_.frame)};
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      block_ = i;
      for (index_ = 0; index_ < blocks[i]->size(); ++index_) std::visit(*this, (*blocks[i])[index_]);
    }
    answer();
  }

  void operator()(const core::Copy& p) const {
    const MatrixRows from = rows(p.in), to = target(p.out);
    for (std::int64_t row = 0; row < rows_; ++row) {
      std::copy_n(from.data + row * from.step, p.in.size, to.data + row * to.step);
    }
  }

  void operator()(const core::Norm& p) const {
    each_piece([&](std::int64_t begin, std::int64_t count) {
      normalize(packed().norm, at(p.in, begin), p.in.size, p.epsilon, count, at(p.out, begin));
    });
  }

  void operator()(const core::Product& p) const {
    const MatrixRows x = rows(p.in), y = target(p.out);
    if (p.adds) std::copy_n(rows(p.out).data, rows_ * y.step, y.data);
    each_piece([&](std::int64_t begin, std::int64_t count) {
      multiply(packed().matrix, x.data + begin * x.step, x.step, count, {y.data + begin * y.step, y.step},
               p.adds ? Epilogue::add : Epilogue::store, 0, panels(p.out.size));
      if (p.relu) relu(y.data + begin * y.step, count, y.step, 0, panels(p.out.size));
    });
  }

  void operator()(const core::Softplus& p) const {
    const std::int64_t step = rows(p.out).step;
    each_piece([&](std::int64_t begin, std::int64_t count) {
      std::copy_n(at(p.in, begin), count * step, at(p.out, begin));
      activate_dt(at(p.out, begin), packed().bias, {p.lowest, p.highest}, count, step, 0, panels(p.out.size));
    });
  }

  void operator()(const core::Mean& p) const {
    each_piece([&](std::int64_t begin, std::int64_t count) {
      for (std::int64_t row = begin; row < begin + count; ++row)
        *at(p.out, row) = mean_of(at(p.in, row), p.in.size);
    });
  }

  void operator()(const core::Convolution& p) const {
    const std::int64_t kept = p.taps - 1, step = rows(p.in).step;
    core::parallel_for(group_.count, 1, [&](std::int64_t begin, std::int64_t end) {
      AlignedBuffer after(kept * step);
      for (std::int64_t i = begin; i < end; ++i) {
        const RecordedPhase phase = recorded(i);
        Convolution convolution = recorded_convolution(p, phase);
        const float* given = phase.state(group_.all->states, p.state);
        for (std::int64_t k = 0; k < kept * p.in.size; ++k) {
          convolution.history[k % kept * step + k / kept] = given == nullptr ? 0.0f : given[k];
        }
        std::copy_n(convolution.history, kept * step, after.data());
        convolution.history = after.data();
        convolve(convolution, 0, panels(p.in.size));
        float* final = phase.state(out_.states, p.state);
        for (std::int64_t k = 0; final != nullptr && k < kept * p.in.size; ++k) {
          final[k] = after.data()[k % kept * step + k / kept];
        }
      }
    });
  }

  void operator()(const core::SelectiveScan& p) const {
    const std::int64_t parts = parts_of(p.x.size), blocks = panels(p.x.size);
    const ScanRule& rule = packed().rule;
    core::parallel_for(group_.count * parts, 1, [&](std::int64_t begin, std::int64_t end) {
      float* scratch = thread_scratch(Scratch::scan, scan_scratch_floats(rule));
      for (std::int64_t i = begin; i < end; ++i) {
        const RecordedPhase phase = recorded(i / parts);
        const std::int64_t first = i % parts * kPartBlocks;
        ScanSequence scan = recorded_scan(p, phase, length_);
        const MatrixRows y = phase.rows(p.out);
        scan.y = y.data, scan.y_step = y.step;
        scan.final_state = phase.state(out_.states, p.state);
        scan_channels(rule, scan, first, std::min(first + kPartBlocks, blocks), scratch);
      }
    });
  }

 private:
  std::int64_t seq() const { return group_.all->seq; }
  const PackedPhase& packed() const { return w_.blocks()[block_][index_]; }
  RecordedPhase recorded(std::int64_t sequence) const {
    return {packed(), r_.blocks[block_], group_, n_, index_, sequence};
  }
  MatrixRows rows(const core::Span& span) const {
    const MatrixRows& all = r_.blocks[block_].at[static_cast<std::size_t>(span.vector)];
    return {all.data + span.first, all.step};
  }
  float* at(const core::Span& span, std::int64_t row) const {
    const MatrixRows all = rows(span);
    return all.data + row * all.step;
  }
  // Where a result goes: hidden to the next block, which reads it.
  MatrixRows target(const core::Span& span) const {
    if (span.vector != n_.hidden) return rows(span);
    const MatrixRows& all = r_.hidden_after(block_);
    return {all.data + span.first, all.step};
  }

  template <class Body>
  void each_piece(const Body& body) const {
    core::parallel_for(rows_, kPieceRows,
                       [&](std::int64_t begin, std::int64_t end) { body(begin, end - begin); });
  }

  void answer() const {
    if (out_.outs == nullptr) return;
    const MatrixRows from = r_.blocks.back().at[static_cast<std::size_t>(n_.outs)];
    const std::int64_t size = n_.size_of(n_.outs);
    float* to = out_.outs + group_.first * seq() * size;
    for (std::int64_t row = 0; row < rows_; ++row) {
      std::copy_n(from.data + row * from.step, size, to + row * size);
    }
  }

  const PackedWeights& w_;
  const core::Network& n_;
  const SequenceGroup& group_;
  const core::PolicyGradOutputs& out_;
  GradientRecord& r_;
  const std::int64_t rows_, length_;
  std::size_t block_ = 0, index_ = 0;
};

// Calls of_rows(block, vector, step) for the rows of every vector of every block, and of_history(block,
// phase, floats of a sequence) for every convolution.
template <class OfRows, class OfHistory>
void for_memory(const core::Network& n, const OfRows& of_rows, const OfHistory& of_history) {
  const std::vector<std::int64_t> steps = row_steps(n);
  const auto step_of = [&steps](core::VectorId id) { return steps[static_cast<std::size_t>(id)]; };
  const std::vector<const core::Block*> blocks = blocks_of(n);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (b > 0) of_rows(b, n.hidden, step_of(n.hidden));
    std::vector<bool> done(n.vectors.size());
    for (std::size_t i = 0; i < blocks[b]->size(); ++i) {
      const core::VectorId out = core::writes((*blocks[b])[i]).vector;
      if (out != n.hidden && !done[static_cast<std::size_t>(out)]) of_rows(b, out, step_of(out));
      done[static_cast<std::size_t>(out)] = true;
      const auto* const convolution = std::get_if<core::Convolution>(&(*blocks[b])[i]);
      if (convolution != nullptr) of_history(b, i, (convolution->taps - 1) * padded(convolution->in.size));
    }
  }
}

}  // namespace

std::vector<std::int64_t> row_steps(const core::Network& network) {
  std::vector<std::int64_t> steps;
  for (const core::Vector& vector : network.vectors) steps.push_back(padded(vector.size));
  for (const core::Phase* phase : core::phases_of(network)) {
    if (const auto* const mean = std::get_if<core::Mean>(phase))
      steps[static_cast<std::size_t>(mean->out.vector)] = 1;
  }
  return steps;
}

GradientRecord::GradientRecord(const PackedWeights& weights, std::int64_t count, std::int64_t seq)
    : hidden_(weights.network().hidden) {
  const core::Network& n = weights.network();
  const std::int64_t rows = count * seq;
  const auto floats_of = [&](std::int64_t step) {
    return padded(core::checked_multiply(rows, step, "frames"));
  };
  std::int64_t floats = 0;
  const auto add = [&floats](std::int64_t more) {
    if (__builtin_add_overflow(floats, more, &floats)) core::checked_multiply(INT64_MAX, 2, "frames");
  };
  for_memory(
      n, [&](std::size_t, core::VectorId, std::int64_t step) { add(floats_of(step)); },
      [&](std::size_t, std::size_t, std::int64_t each) { add(count * each); });
  memory_ = AlignedBuffer(floats);
  float* next = memory_.data();
  const auto take = [&next](std::int64_t taken) { return std::exchange(next, next + taken); };
  const std::vector<const core::Block*> all = blocks_of(n);
  for (const core::Block* block : all) {
    blocks.push_back({std::vector<MatrixRows>(n.vectors.size()), std::vector<float*>(block->size())});
  }
  for_memory(
      n,
      [&](std::size_t block, core::VectorId id, std::int64_t step) {
        blocks[block].at[static_cast<std::size_t>(id)] = {take(floats_of(step)), step};
      },
      [&](std::size_t block, std::size_t phase, std::int64_t each) {
        blocks[block].history[phase] = take(count * each);
      });
}

const MatrixRows& GradientRecord::hidden_after(std::size_t i) const {
  return blocks[i + 1].at[static_cast<std::size_t>(hidden_)];
}

MatrixRows RecordedPhase::rows(const core::Span& span) const {
  const MatrixRows& all = block.at[static_cast<std::size_t>(span.vector)];
  return {all.data + sequence * group.all->seq * all.step + span.first, all.step};
}

Convolution recorded_convolution(const core::Convolution& p, const RecordedPhase& phase) {
  const MatrixRows x = phase.rows(p.in);
  Convolution convolution;
  convolution.taps = p.taps;
  convolution.step = x.step;
  convolution.weights = phase.packed.taps;
  convolution.bias = phase.packed.bias;
  convolution.history = phase.block.history[phase.index] + phase.sequence * (p.taps - 1) * x.step;
  convolution.x = x.data;
  convolution.out = phase.rows(p.out).data;
  convolution.seq = phase.group.all->seq;
  return convolution;
}

ScanSequence recorded_scan(const core::SelectiveScan& p, const RecordedPhase& phase, std::int64_t length) {
  const auto rows = [&](const core::Span& span) {
    const MatrixRows all = phase.rows(span);
    return Rows{all.data, all.step};
  };
  ScanSequence scan;
  scan.seq = phase.group.all->seq;
  scan.x = rows(p.x), scan.dt = rows(p.dt), scan.z = rows(p.z);
  scan.b = {phase.rows(p.b).data, phase.rows(p.b).step, 1, false};
  scan.c = {phase.rows(p.c).data, phase.rows(p.c).step, 1, false};
  scan.a_panels = phase.packed.a;
  scan.a_bounds = phase.packed.a_bounds;
  scan.d = phase.packed.d;
  scan.dt_bias = phase.packed.bias;
  if (p.input_dt) scan.input_dt = phase.rows(p.input_dt).data;
  scan.decays_input = core::decays_input(p, length);
  scan.initial_state = phase.state(phase.group.all->states, p.state);
  return scan;
}

void record_forward(const PackedWeights& weights, const SequenceGroup& group,
                    const core::PolicyGradOutputs& outputs, GradientRecord& record) {
  Forward(weights, group, outputs, record).run();
}

}  // namespace exphil::host
