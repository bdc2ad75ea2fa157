#include "host/policy/gradient_backward.hpp"

#include <algorithm>

#include "core/work/parallel.hpp"
#include "host/policy/gradient_heads.hpp"
#include "host/policy/gradient_kernels.hpp"
#include "host/policy/gradient_scan.hpp"
#include "host/policy/gradient_trapezoid.hpp"
#include "host/policy/gradient_walk.hpp"
#include "host/policy/phase_access.hpp"

namespace exphil::host {

namespace {

// An operator for each kind of phase, which passes the gradient of its result on to what it read.
class Backward {
  using Stored = VectorGradients::Stored;
  static constexpr std::int64_t kAnyStep = VectorGradients::kAnyStep;

 public:
  Backward(const PackedWeights& weights, const SequenceGroup& group, const GradientRecord& record,
           const BackMemory& memory)
      : w_(weights),
        n_(weights.network()),
        group_(group),
        r_(record),
        sums_(memory.sums),
        d_(memory.rows),
        v_(memory.rows.d),
        seq_(group.all->seq),
        rows_(group.rows()) {}

  void run(const float* d_outs, const core::PolicyGradOutputs& outputs) {
    float* const d_frames = outputs.frames;
    d_states_ = outputs.d_states;
    const core::Span outs = n_.all_of(n_.outs), frame = n_.all_of(n_.frame), hidden = n_.all_of(n_.hidden);
    const std::int64_t first = group_.first * seq_;
    // Is only read.
    copy_rows({const_cast<float*>(d_outs) + first * outs.size, outs.size}, v_.own(outs), rows_, 0, outs.size);
    const std::vector<const core::Block*> blocks = blocks_of(n_);
    for (block_ = blocks.size(); block_-- > 0;) {
      const core::Block& block = *blocks[block_];
      // Where a layer adds to hidden, the gradient after it is also part of that before it.
      v_.begin(block_ + 1 == blocks.size() ? n_.outs : n_.hidden, rows_);
      wants_input_ = block_ > 0 || d_frames != nullptr;
      for (index_ = block.size(); index_-- > 0;) {
        const core::Phase& phase = block[index_];
        if (std::holds_alternative<core::GatedCell>(phase)) {
          const std::size_t first = walk_begin(block, index_);
          walk(block, first, index_);
          index_ = first;
          continue;
        }
        std::visit(*this, phase);
        const core::Span out = core::writes(phase);
        // A layer that replaces the first values of hidden passes on no others.
        if (out.vector == n_.hidden && !core::adds(phase)) v_.drop(block_ == 0 ? out : hidden);
      }
      if (block_ > 0) v_.whole(hidden);
    }
    if (d_frames == nullptr) return;
    copy_rows(v_.whole(frame), {d_frames + first * frame.size, frame.size}, rows_, 0, frame.size);
  }

  void operator()(const core::Copy& p) {
    const MatrixRows dy = v_.whole(p.out);
    v_.pass_on(p.in, v_.claim(p.in), dy);
  }

  // Adds, also to the weights of each sequence's row.
  void operator()(const core::Norm& p) {
    const MatrixRows dy = v_.whole(p.out), dx = v_.whole(p.in);
    const std::array<const float*, 3>& weights = packed().weights;
    each_sequence([&](std::int64_t i, const SequenceSums& sums) {
      const NormGradient gradient{rows(p.in, i), from(dy, i * seq_), from(dx, i * seq_), sums.of(i, kWeight),
                                  sums.of(i, kBias)};
      normalize_back({weights[kWeight], weights[kBias], norm_parts(p), p.repeats}, gradient, p.in.size,
                     p.epsilon, seq_);
    });
  }

  void operator()(const core::Product& p) {
    LinearGradient& product = sums().phases[index_].product;
    const MatrixRows dy = v_.whole(p.out);
    if (p.relu) relu_back(rows(p.out).data, rows_, dy.step, panels(p.out.size), dy.data);
    product.add(dy, rows(p.in), rows_);
    if (!wants_input_) return;
    if (p.in == n_.all_of(p.in.vector)) {
      const Epilogue epilogue = v_.claim(p.in) ? Epilogue::store : Epilogue::add;
      return product.back(dy, rows_, v_.own(p.in), epilogue);
    }
    // Whole panels would reach beyond the part.
    const Stored to = v_.stored(p.in, padded(p.in.size));
    product.back(dy, rows_, to.rows, Epilogue::store);
    v_.settle(to);
  }

  void operator()(const core::Convolution& p) {
    const MatrixRows dv = v_.whole(p.out);
    const Stored dx = v_.stored(p.in, dv.step);
    const std::int64_t blocks = panels(p.in.size);
    Histories histories(p, group_, n_);
    AlignedBuffer d_histories(d_states_ == nullptr ? 0 : histories.all.floats());
    each_part(blocks, [&](std::int64_t begin, std::int64_t end, const SequenceSums& sums) {
      each_sequence_run(blocks, begin, end, [&](std::int64_t i, std::int64_t first, std::int64_t last) {
        Convolution convolution = convolution_of(p, packed(), r_.blocks[block_].data(), i * seq_, seq_);
        convolution.history = histories.of(i);  // is only read
        const std::int64_t at = i * seq_ * dv.step;
        convolve_back(convolution,
                      {dv.data + at, dx.rows.data + at, sums.of(i, kWeight), sums.of(i, kBias),
                       core::advanced(d_histories.data(), i * histories.place.floats())},
                      first, last);
      });
    });
    for (std::int64_t i = 0; d_states_ != nullptr && i < group_.count; ++i) {
      histories.place.read(d_histories.data() + i * histories.place.floats(),
                           state_part(d_states_, group_, i, n_, p.state));
    }
    v_.settle(dx);
  }

  void operator()(const core::Softplus& p) {
    const MatrixRows dy = v_.whole(p.out), x = rows(p.in);
    const Stored dx = v_.stored(p.in, padded(p.in.size));
    const std::int64_t size = padded(p.in.size);
    each_piece([&](std::int64_t row, std::int64_t count) {
      const MatrixRows to = from(dx.rows, row);
      copy_rows(from(dy, row), to, count, 0, size);
      activate_dt_back(from(x, row), packed().weights[kBias], {p.lowest, p.highest}, panels(size), count, to);
    });
    add_rows(dx.rows.data, rows_, dx.rows.step, totals(kBias), 0, panels(p.in.size));
    v_.settle(dx);
  }

  // Every value receives its share of the gradient of its mean.
  void operator()(const core::Mean& p) {
    const MatrixRows dy = v_.whole(p.out);
    const Stored dx = v_.stored(p.in, kAnyStep);
    const std::int64_t size = p.in.size / p.out.size;
    each_piece([&](std::int64_t row, std::int64_t count) {
      for (const std::int64_t end = row + count; row < end; ++row) {
        for (std::int64_t part = 0; part < p.out.size; ++part) {
          std::fill_n(from(dx.rows, row).data + part * size, size,
                      from(dy, row).data[part] / static_cast<float>(size));
        }
      }
    });
    v_.settle(dx);
  }

  void operator()(const core::Sigmoid& p) {
    const MatrixRows dy = v_.whole(p.out), x = rows(p.in);
    const Stored dx = v_.stored(p.in, kAnyStep);
    each_piece([&](std::int64_t row, std::int64_t count) {
      sigmoid_back(from(x, row), from(dy, row), from(dx.rows, row), count, p.in.size);
    });
    v_.settle(dx);
  }

  void operator()(const core::Gate& p) {
    const MatrixRows dy = v_.whole(p.out), x = rows(p.in), z = rows(p.gate);
    const Stored dx = v_.stored(p.in, kAnyStep), dz = v_.stored(p.gate, kAnyStep, 1);
    each_piece([&](std::int64_t row, std::int64_t count) {
      gate_back({from(x, row), from(z, row), from(dy, row), from(dx.rows, row), from(dz.rows, row)}, count,
                p.in.size);
    });
    v_.settle(dx), v_.settle(dz);
  }

  // The phases of gradient_heads.hpp and gradient_trapezoid.hpp.
  template <class P>
  void operator()(const P& p) {
    const std::int64_t all = group_.count;
    GradientSums::sum_up(
        sums(), sums().phases[index_], all, all, &d_.rows, [&](const SequenceSums& sums, std::int64_t) {
          phase_back(p, {packed(), n_, group_, r_.blocks[block_].data(), sums, v_, d_states_});
        });
  }

  void operator()(const core::SelectiveScan& p) {
    phase_back(p, RecordedScan{packed(), n_, w_.config(), group_, r_.blocks[block_].data(),
                               r_.before[block_][index_], sums(), sums().phases[index_], d_, d_states_});
  }

  void operator()(const core::Recall&) {}     // walk() has them
  void operator()(const core::GatedCell&) {}  // the same

 private:
  BlockSums& sums() { return sums_.blocks[block_]; }
  const PackedPhase& packed() const { return w_.blocks()[block_][index_]; }
  float* totals(PhaseWeightName name) {
    return sums().totals.data() + sums().phases[index_].weights[name].place.at;
  }
  // As the forward pass left them, from one sequence on.
  MatrixRows rows(const core::Span& span, std::int64_t sequence = 0) const {
    return rows_at(r_.blocks[block_].data(), span, sequence * seq_);
  }
  // run(begin, end, sums) for all parts of all sequences, one sequence after another.
  template <class Run>
  void each_part(std::int64_t parts, const Run& run) {
    GradientSums::each_part(sums(), sums().phases[index_], group_.count, parts, &d_.rows, run);
  }
  template <class Body>
  void each_sequence(const Body& body) {
    each_part(1, [&](std::int64_t begin, std::int64_t end, const SequenceSums& sums) {
      for (; begin < end; ++begin) body(begin, sums);
    });
  }
  template <class Body>
  void each_piece(const Body& body) const {
    core::parallel_for(rows_, kPieceRows,
                       [&](std::int64_t begin, std::int64_t end) { body(begin, end - begin); });
  }

  // ---- cells, back through time ----

  // Phases [first, last]: the gradients of all vectors frame by frame, then those of the weights.
  void walk(const core::Block& block, std::size_t first, std::size_t last) {
    walk_back({n_, group_, r_, block, block_, first, last, d_states_}, sums(), v_);
    for (index_ = last + 1; index_-- > first;) {
      const auto* const p = std::get_if<core::Product>(&block[index_]);
      if (p != nullptr) sums().phases[index_].product.add(v_.own(p->out), rows(p->in), rows_);
    }
  }

  const PackedWeights& w_;
  const core::Network& n_;
  const SequenceGroup& group_;
  const GradientRecord& r_;
  GradientSums& sums_;
  BackRows& d_;
  VectorGradients& v_;
  const std::int64_t seq_, rows_;
  float* d_states_ = nullptr;
  std::size_t block_ = 0, index_ = 0;
  bool wants_input_ = true;
};

}  // namespace

void pass_back(const PackedWeights& weights, const SequenceGroup& group, const GradientRecord& record,
               const BackMemory& memory, const float* d_outs, const core::PolicyGradOutputs& outputs) {
  Backward(weights, group, record, memory).run(d_outs, outputs);
}

}  // namespace exphil::host
