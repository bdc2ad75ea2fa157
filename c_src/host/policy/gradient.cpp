#include "host/policy/gradient.hpp"

#include <algorithm>

#include "core/work/parallel.hpp"
#include "host/policy/gradient_kernels.hpp"
#include "host/policy/gradient_record.hpp"
#include "host/policy/gradient_sums.hpp"
#include "host/recurrence/gradient.hpp"
#include "host/simd/thread_scratch.hpp"

namespace exphil::host {

namespace {

// Memory of the backward pass, used by one block after the other.
struct BackRows {
  BackRows(const core::Network& n, const GradientSums& sums, std::int64_t count, std::int64_t seq)
      : steps(row_steps(n)), vectors(count * sums.most_floats()) {
    std::int64_t rows = count * seq, widest = 0, sum_floats = 0, by_channel_floats = 0;
    for (const std::int64_t step : steps) d.emplace_back(rows * step);
    for (const core::Phase* phase : core::phases_of(n)) {
      if (const auto* const product = std::get_if<core::Product>(phase);
          product != nullptr && !(product->in == n.all_of(product->in.vector)))
        widest = std::max(widest, padded(product->in.size));
      if (const auto* const scan = std::get_if<core::SelectiveScan>(phase)) {
        sum_floats = std::max(sum_floats, count * sums_of(*scan, seq));
        if (scan->input_dt) by_channel_floats = std::max(by_channel_floats, rows * padded(scan->x.size));
      }
    }
    part = AlignedBuffer(rows * widest);
    b_sums = AlignedBuffer(sum_floats), c_sums = AlignedBuffer(sum_floats);
    by_channel = AlignedBuffer(by_channel_floats);
  }
  // Floats of a sequence in b_sums and in c_sums.
  static std::int64_t sums_of(const core::SelectiveScan& scan, std::int64_t seq) {
    return sum_slots(scan.x.size, 1) * tiles(seq) * scan.b.size * kTile;
  }

  const std::vector<std::int64_t> steps;
  std::vector<AlignedBuffer> d;  // of each vector, the gradient of its rows
  AlignedBuffer vectors;         // {count, BlockSums::floats}
  AlignedBuffer part;            // of a part of a vector that a product reads
  AlignedBuffer b_sums, c_sums;  // ProjectionGradient::sums of each sequence
  AlignedBuffer by_channel;      // {rows, channels}: what each channel of a scan passes to input_dt
};

// An operator for each kind of phase, which passes the gradient of its result on to what it read.
class Backward {
 public:
  Backward(const PackedWeights& weights, const SequenceGroup& group, const GradientRecord& record,
           GradientSums& sums, ProductScratch& scratch, BackRows& rows)
      : w_(weights),
        n_(weights.network()),
        group_(group),
        r_(record),
        sums_(sums),
        scratch_(scratch),
        d_(rows),
        rows_(group.rows()),
        length_(group.all->length(weights.config())) {}

  void run(const float* d_outs, float* d_frames) {
    read_outs(d_outs);
    const std::vector<const core::Block*> blocks = blocks_of(n_);
    for (block_ = blocks.size(); block_-- > 0;) {
      const core::Block& block = *blocks[block_];
      written_.clear();
      // A layer adds to hidden, so that the gradient after it is also part of that before it.
      if (block_ + 1 < blocks.size()) written_.push_back(n_.all_of(n_.hidden));
      std::fill_n(d_.vectors.data(), group_.count * sums().floats, 0.0f);
      wants_input_ = block_ > 0 || d_frames != nullptr;
      for (index_ = block.size(); index_-- > 0;) std::visit(*this, block[index_]);
      GradientSums::add_rows_of(sums(), d_.vectors, group_.count);
    }
    if (d_frames != nullptr) write_frames(d_frames);
  }

  void operator()(const core::Copy& p) { pass_on(target(p.in), d(p.out), p.in.size); }

  // Adds, also to the vectors of each sequence's row.
  void operator()(const core::Norm& p) {
    const Target to = target(p.in);
    if (to.first) std::fill_n(to.rows.data, rows_ * to.rows.step, 0.0f);
    core::parallel_for(group_.count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = i * seq() * to.rows.step;
        const NormGradient gradient{recorded(i).rows(p.in).data, d(p.out).data + first, to.rows.data + first,
                                    row_of(i) + phase_sums().first, row_of(i) + phase_sums().second};
        normalize_back(packed().norm, gradient, p.in.size, p.epsilon, seq());
      }
    });
  }

  void operator()(const core::Product& p) {
    LinearGradient& product = phase_sums().product;
    const MatrixRows rows = d(p.out), x = recorded(0).rows(p.in);
    const GradientRows dy{rows.data, rows.step};
    if (p.relu) relu_back(recorded(0).rows(p.out).data, rows_ * rows.step, rows.data);
    product.add(dy, {x.data, x.step}, rows_, scratch_);
    if (!wants_input_) return;
    const Target to = target(p.in);
    if (p.in == n_.all_of(p.in.vector)) {
      return product.back(dy, rows_, to.rows, to.first ? Epilogue::store : Epilogue::add);
    }
    // Whole panels would reach beyond the part.
    const std::int64_t step = padded(p.in.size);
    product.back(dy, rows_, {d_.part.data(), step}, Epilogue::store);
    pass_on(to, {d_.part.data(), step}, p.in.size);
  }

  // It alone reads its input.
  void operator()(const core::Convolution& p) {
    const MatrixRows dv = d(p.out), dx = target(p.in).rows;
    core::parallel_for(group_.count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = i * seq() * dx.step;
        convolve_back(recorded_convolution(p, recorded(i)),
                      {dv.data + first, dx.data + first, row_of(i) + phase_sums().first,
                       row_of(i) + phase_sums().second},
                      0, panels(p.in.size));
      }
    });
  }

  void operator()(const core::Softplus& p) {
    const MatrixRows dy = d(p.out), dx = target(p.in).rows, x = recorded(0).rows(p.in);
    core::parallel_for(rows_, kPieceRows, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t first = begin * dx.step;
      std::copy_n(dy.data + first, (end - begin) * dx.step, dx.data + first);
      activate_dt_back(x.data + first, packed().bias, {p.lowest, p.highest}, p.in.size, end - begin,
                       dx.data + first);
    });
    add_rows(dx.data, rows_, dx.step, phase_sums().bias.data(), 0, panels(p.in.size));
  }

  // Every value receives its share of the gradient of the mean.
  void operator()(const core::Mean& p) {
    const MatrixRows d_mean = d(p.out);
    const Target to = target(p.in);
    core::parallel_for(rows_, kPieceRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        float* const into = to.rows.data + row * to.rows.step;
        const float received = d_mean.data[row * d_mean.step] / static_cast<float>(p.in.size);
        for (std::int64_t i = 0; i < p.in.size; ++i) into[i] = to.first ? received : into[i] + received;
      }
    });
  }

  void operator()(const core::SelectiveScan& p) {
    scans(p);
    projections(p);
    if (p.input_dt) input_dt(p);
    if (!p.activates) return;
    const MatrixRows d_dt = d(p.dt);
    add_rows(d_dt.data, rows_, d_dt.step, phase_sums().bias.data(), 0, panels(p.dt.size));
  }

 private:
  // Where a gradient goes, and whether it is the first to go there: later ones are added.
  struct Target {
    MatrixRows rows;
    bool first = true;
  };

  std::int64_t seq() const { return group_.all->seq; }
  BlockSums& sums() { return sums_.blocks[block_]; }
  PhaseSums& phase_sums() { return sums().phases[index_]; }
  const PackedPhase& packed() const { return w_.blocks()[block_][index_]; }
  float* row_of(std::int64_t sequence) { return d_.vectors.data() + sequence * sums().floats; }
  RecordedPhase recorded(std::int64_t sequence) const {
    return {packed(), r_.blocks[block_], group_, n_, index_, sequence};
  }
  MatrixRows d(const core::Span& span) {
    AlignedBuffer& all = d_.d[static_cast<std::size_t>(span.vector)];
    return {all.data() + span.first, d_.steps[static_cast<std::size_t>(span.vector)]};
  }
  Target target(const core::Span& span) {
    const bool first = std::find(written_.begin(), written_.end(), span) == written_.end();
    if (first) written_.push_back(span);
    return {d(span), first};
  }

  void read_outs(const float* d_outs) {
    const MatrixRows to = d(n_.all_of(n_.outs));
    const std::int64_t size = n_.size_of(n_.outs);
    const float* from = d_outs + group_.first * seq() * size;
    for (std::int64_t row = 0; row < rows_; ++row)
      std::copy_n(from + row * size, size, to.data + row * to.step);
  }
  void write_frames(float* d_frames) {
    const MatrixRows from = d(n_.all_of(n_.frame));
    const std::int64_t size = n_.size_of(n_.frame);
    float* to = d_frames + group_.first * seq() * size;
    for (std::int64_t row = 0; row < rows_; ++row)
      std::copy_n(from.data + row * from.step, size, to + row * size);
  }
  // The gradient of a vector or a part of it, from `from` on: stored where it is the first, else added.
  void pass_on(const Target& to, MatrixRows from, std::int64_t size) const {
    for (std::int64_t row = 0; row < rows_; ++row) {
      float* const into = to.rows.data + row * to.rows.step;
      const float* const values = from.data + row * from.step;
      for (std::int64_t i = 0; i < size; ++i) into[i] = to.first ? values[i] : into[i] + values[i];
    }
  }

  // It is the first to pass on to x, dt and z.
  void scans(const core::SelectiveScan& p) {
    const std::int64_t parts = parts_of(p.x.size), each = BackRows::sums_of(p, seq());
    std::fill_n(d_.b_sums.data(), group_.count * each, 0.0f);
    std::fill_n(d_.c_sums.data(), group_.count * each, 0.0f);
    const MatrixRows dy = d(p.out), dx = target(p.x).rows, d_dt = target(p.dt).rows, dz = target(p.z).rows;
    core::parallel_for(group_.count * parts, 1, [&](std::int64_t begin, std::int64_t end) {
      AlignedBuffer large;
      float* scratch =
          thread_scratch(Scratch::gradient, gradient_scratch_floats(packed().rule, seq()), &large);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t sequence = i / parts, at = sequence * seq() * dy.step;
        GradientSequence g;
        g.scan = recorded_scan(p, recorded(sequence), length_);
        g.dy = {dy.data + at, dy.step};
        g.dx = dx.data + at, g.ddt = d_dt.data + at, g.dz = dz.data + at;
        if (p.input_dt) g.d_input_dt = d_.by_channel.data() + at;
        g.da = row_of(sequence) + phase_sums().second;
        if (p.d != core::kNone) g.dd = row_of(sequence) + phase_sums().first;
        g.b.sums = d_.b_sums.data() + sequence * each;
        g.c.sums = d_.c_sums.data() + sequence * each;
        gradient_part(packed().rule, g, i % parts, scratch);
      }
    });
  }

  // B and C of every row: the sums over the parts of the channels.
  void projections(const core::SelectiveScan& p) {
    const std::int64_t parts = parts_of(p.x.size), floats = tiles(seq()) * p.b.size * kTile;
    const MatrixRows db = target(p.b).rows, dc = target(p.c).rows;
    core::parallel_for(rows_, kPieceRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t sequence = row / seq(), t = row % seq();
        const std::int64_t at = sequence * parts * floats + t / kTile * p.b.size * kTile + t % kTile;
        const auto sum = [&](const float* from, float* to) {
          for (std::int64_t n = 0; n < p.b.size; ++n) {
            to[n] = 0.0f;
            for (std::int64_t part = 0; part < parts; ++part) to[n] += from[part * floats + n * kTile];
          }
        };
        sum(d_.b_sums.data() + at, db.data + row * db.step);
        sum(d_.c_sums.data() + at, dc.data + row * dc.step);
      }
    });
  }

  // All channels read it.
  void input_dt(const core::SelectiveScan& p) {
    const MatrixRows to = target(p.input_dt).rows;
    const std::int64_t step = padded(p.x.size);
    core::parallel_for(rows_, kPieceRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        to.data[row * to.step] = sum_of(d_.by_channel.data() + row * step, p.x.size);
    });
  }

  const PackedWeights& w_;
  const core::Network& n_;
  const SequenceGroup& group_;
  const GradientRecord& r_;
  GradientSums& sums_;
  ProductScratch& scratch_;
  BackRows& d_;
  const std::int64_t rows_, length_;
  std::size_t block_ = 0, index_ = 0;
  bool wants_input_ = true;
  std::vector<core::Span> written_;  // whose gradients are there, in this block
};

}  // namespace

void policy_grad(const core::PolicyWeights& weights, const core::PolicySequences& sequences,
                 const float* d_outs, const core::PolicyGradOutputs& outputs) {
  const PackedWeights packed(weights);
  const std::int64_t seq = sequences.seq;
  const std::int64_t count = std::clamp<std::int64_t>(kGradientRows / seq, 1, sequences.batch);
  GradientRecord record(packed, count, seq);
  const auto forward = [&](const SequenceGroup& group) { record_forward(packed, group, outputs, record); };
  const auto each_group = [&](const auto& run) {
    for (std::int64_t first = 0; first < sequences.batch; first += count)
      run(SequenceGroup{&sequences, first, std::min(count, sequences.batch - first)});
  };
  if (d_outs == nullptr) return each_group(forward);
  GradientSums sums(weights);
  ProductScratch scratch(sums.most_outs(), sums.most_depth());
  BackRows rows(weights.network(), sums, count, seq);
  each_group([&](const SequenceGroup& group) {
    forward(group);
    Backward(packed, group, record, sums, scratch, rows).run(d_outs, outputs.frames);
  });
  if (outputs.weights != nullptr) sums.write(weights, outputs.weights);
}

}  // namespace exphil::host
