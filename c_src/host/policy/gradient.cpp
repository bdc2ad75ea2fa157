#include "host/policy/gradient.hpp"

#include <algorithm>

#include "core/parallel.hpp"
#include "host/policy/gradient_kernels.hpp"
#include "host/policy/gradient_record.hpp"
#include "host/policy/gradient_sums.hpp"
#include "host/recurrence/gradient.hpp"
#include "host/simd/thread_scratch.hpp"

namespace exphil::host {

namespace {

constexpr std::int64_t kPieceRows = 48;  // rows in one piece of a thread

// Rows of gradients, used by one layer after the other.
struct BackRows {
  BackRows(const GradientRecord& r, const GradientSums& sums, const core::PolicyConfig& c, std::int64_t count,
           std::int64_t seq)
      : hidden(count * seq * r.model),
        normed(count * seq * r.model),
        gated(count * seq * r.inner),
        s(count * seq * r.inner),
        dt(count * seq * r.inner),
        z(count * seq * r.inner),
        x(count * seq * r.inner),
        projected(count * seq * r.projected),
        low_rank(count * seq * padded(c.dt_rank)),
        outs(count * seq * r.outputs),
        head_hidden(count * seq * r.head_width),
        vectors(count * sums.vectors.floats),
        b_sums(count * sum_slots(c.d_inner, 1) * tiles(seq) * c.d_state * kTile),
        c_sums(b_sums.floats()) {
    if (c.spec.input_dt == core::InputDt::mean) input_dt = AlignedBuffer(count * seq * r.inner);
  }
  AlignedBuffer hidden, normed;       // {rows, model}
  AlignedBuffer gated, s, dt, z, x;   // {rows, inner}
  AlignedBuffer projected, low_rank;  // {rows, padded(dt_rank + 2 d_state)}, {rows, padded(dt_rank)}
  AlignedBuffer outs, head_hidden;    // {rows, padded(d_output)}, {rows, padded(width)}
  AlignedBuffer vectors;              // {count, LayerVectors::floats}
  AlignedBuffer b_sums, c_sums;       // ProjectionGradient::sums of each sequence
  AlignedBuffer input_dt;             // {rows, inner}, where the mean of dt is used
};

class Backward {
 public:
  Backward(const PackedWeights& weights, const SequenceGroup& group, const GradientRecord& record,
           GradientSums& sums, ProductScratch& scratch, BackRows& rows)
      : w_(weights),
        c_(weights.config()),
        group_(group),
        r_(record),
        sums_(sums),
        scratch_(scratch),
        d_(rows),
        rows_(group.rows()) {}

  void run(const float* d_outs, float* d_frames) {
    heads(d_outs);
    if (c_.spec.final_norm) {
      std::fill_n(d_.vectors.data(), group_.count * sums_.vectors.floats, 0.0f);
      std::fill_n(d_.hidden.data(), rows_ * r_.model, 0.0f);
      norm(w_.norm_f(), r_.hidden, d_.normed.data());
      sums_.add_vectors(d_.vectors, group_.count, &sums_.final_vectors);
    } else {
      std::copy_n(d_.normed.data(), rows_ * r_.model, d_.hidden.data());
    }
    for (std::int64_t i = c_.n_layer; i-- > 0;) layer(i);
    frames(d_frames);
  }

 private:
  std::int64_t seq() const { return group_.all->seq; }

  // Leaves the gradient of the final hidden state in d_.normed.
  void heads(const float* d_outs) {
    const float* from = d_outs + group_.first * seq() * c_.d_output;
    const bool bare = sums_.head.outs() == 0;
    AlignedBuffer& to = bare ? d_.normed : d_.outs;
    const std::int64_t step = bare ? r_.model : r_.outputs;
    for (std::int64_t row = 0; row < rows_; ++row) {
      std::copy_n(from + row * c_.d_output, c_.d_output, to.data() + row * step);
    }
    if (bare) return;
    const GradientRows dy{d_.outs.data(), r_.outputs}, final{r_.final, r_.model};
    const MatrixRows d_final{d_.normed.data(), r_.model};
    if (sums_.heads_hidden.outs() == 0) {
      sums_.head.add(dy, final, rows_, scratch_);
      return sums_.head.back(dy, rows_, d_final, Epilogue::store);
    }
    const GradientRows d_hidden{d_.head_hidden.data(), r_.head_width};
    sums_.head.add(dy, {r_.head_hidden, r_.head_width}, rows_, scratch_);
    sums_.head.back(dy, rows_, {d_.head_hidden.data(), r_.head_width}, Epilogue::store);
    relu_back(r_.head_hidden, rows_ * r_.head_width, d_.head_hidden.data());
    sums_.heads_hidden.add(d_hidden, final, rows_, scratch_);
    sums_.heads_hidden.back(d_hidden, rows_, d_final, Epilogue::store);
  }

  // Adds to d_.hidden, and to each sequence's row of vectors.
  void norm(const Norm& norm, const float* x, const float* dy) {
    core::parallel_for(group_.count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = i * seq() * r_.model;
        float* row = d_.vectors.data() + i * sums_.vectors.floats;
        normalize_back(norm,
                       {x + first, dy + first, d_.hidden.data() + first, sums_.vectors.norm(row),
                        sums_.vectors.norm_bias(row)},
                       c_.d_model, c_.norm_epsilon, seq());
      }
    });
  }

  void layer(std::int64_t index) {
    const PackedLayer& packed = w_.layers()[static_cast<std::size_t>(index)];
    const LayerRecord& l = r_.layers[static_cast<std::size_t>(index)];
    GradientSums::Layer& sums = sums_.layers[static_cast<std::size_t>(index)];
    std::fill_n(d_.vectors.data(), group_.count * sums_.vectors.floats, 0.0f);
    const GradientRows d_out{d_.hidden.data(), r_.model};
    sums.out_proj.add(d_out, {l.gated, r_.inner}, rows_, scratch_);
    sums.out_proj.back(d_out, rows_, {d_.gated.data(), r_.inner}, Epilogue::store);
    scans(index);
    if (c_.spec.input_dt == core::InputDt::mean) through_mean(packed, l);
    project(l, sums);
    convolutions(index);
    const GradientRows normed{l.normed, r_.model}, dx{d_.x.data(), r_.inner}, dz{d_.z.data(), r_.inner};
    sums.in_x.add(dx, normed, rows_, scratch_);
    sums.in_z.add(dz, normed, rows_, scratch_);
    sums.in_x.back(dx, rows_, {d_.normed.data(), r_.model}, Epilogue::store);
    sums.in_z.back(dz, rows_, {d_.normed.data(), r_.model}, Epilogue::add);
    norm(packed.norm, l.in, d_.normed.data());
    sums_.add_vectors(d_.vectors, group_.count, &sums.vectors);
  }

  void scans(std::int64_t index) {
    const std::int64_t parts = parts_of(c_.d_inner), step = r_.inner;
    const std::int64_t sums = sum_slots(c_.d_inner, 1) * tiles(seq()) * c_.d_state * kTile;
    const bool by_mean = c_.spec.input_dt == core::InputDt::mean;
    std::fill_n(d_.b_sums.data(), group_.count * sums, 0.0f);
    std::fill_n(d_.c_sums.data(), group_.count * sums, 0.0f);
    core::parallel_for(group_.count * parts, 1, [&](std::int64_t begin, std::int64_t end) {
      AlignedBuffer large;
      float* scratch = thread_scratch(Scratch::gradient, gradient_scratch_floats(w_.rule(), seq()), &large);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t sequence = i / parts, at = sequence * seq() * step;
        float* row = d_.vectors.data() + sequence * sums_.vectors.floats;
        GradientSequence g;
        g.scan = recorded_scan(w_, group_, r_, index, sequence);
        g.dy = {d_.gated.data() + at, step};
        g.dx = d_.s.data() + at, g.ddt = d_.dt.data() + at, g.dz = d_.z.data() + at;
        if (by_mean) g.d_input_dt = d_.input_dt.data() + at;
        g.da = sums_.vectors.a(row);
        if (g.scan.d != nullptr) g.dd = sums_.vectors.d(row);
        g.b.sums = d_.b_sums.data() + sequence * sums;
        g.c.sums = d_.c_sums.data() + sequence * sums;
        gradient_part(w_.rule(), g, i % parts, scratch);
      }
    });
  }

  // dt was activated before the scan, and its mean scaled the inputs.
  void through_mean(const PackedLayer& packed, const LayerRecord& l) {
    core::parallel_for(rows_, kPieceRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const float* by_channel = d_.input_dt.data() + row * r_.inner;
        // The mean over the channels of what each passes on is what every channel receives.
        const float received = mean_of(by_channel, c_.d_inner);
        activate_dt_back(l.dt + row * r_.inner, packed.dt_bias, {c_.spec.dt_min, c_.spec.dt_max}, &received,
                         c_.d_inner, 1, d_.dt.data() + row * r_.inner);
      }
    });
  }

  // dt, B and C back to s.
  void project(const LayerRecord& l, GradientSums::Layer& sums) {
    const GradientRows d_dt{d_.dt.data(), r_.inner}, projected{l.projected, r_.projected};
    const std::int64_t low = padded(c_.dt_rank);
    sums.dt_proj.add(d_dt, projected, rows_, scratch_);
    sums.dt_proj.back(d_dt, rows_, {d_.low_rank.data(), low}, Epilogue::store);
    const std::int64_t parts = parts_of(c_.d_inner), floats = tiles(seq()) * c_.d_state * kTile;
    core::parallel_for(rows_, kPieceRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        float* to = d_.projected.data() + row * r_.projected;
        to = std::copy_n(d_.low_rank.data() + row * low, c_.dt_rank, to);
        const std::int64_t sequence = row / seq(), t = row % seq();
        const std::int64_t at = sequence * parts * floats + t / kTile * c_.d_state * kTile + t % kTile;
        for (const float* from : {d_.b_sums.data() + at, d_.c_sums.data() + at}) {
          for (std::int64_t n = 0; n < c_.d_state; ++n, ++to) {
            *to = 0.0f;
            for (std::int64_t part = 0; part < parts; ++part) *to += from[part * floats + n * kTile];
          }
        }
      }
    });
    const GradientRows d_projected{d_.projected.data(), r_.projected};
    sums.x_proj.add(d_projected, {l.s, r_.inner}, rows_, scratch_);
    sums.x_proj.back(d_projected, rows_, {d_.s.data(), r_.inner}, Epilogue::add);
  }

  void convolutions(std::int64_t index) {
    core::parallel_for(group_.count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = i * seq() * r_.inner;
        float* row = d_.vectors.data() + i * sums_.vectors.floats;
        convolve_back(
            recorded_convolution(w_, group_, r_, index, i),
            {d_.s.data() + first, d_.x.data() + first, sums_.vectors.conv(row), sums_.vectors.conv_bias(row)},
            0, panels(c_.d_inner));
      }
    });
  }

  void frames(float* d_frames) {
    const GradientRows d_hidden{d_.hidden.data(), r_.model};
    const core::PolicySequences& all = *group_.all;
    const std::int64_t first = group_.first * seq() * c_.d_input;
    if (c_.spec.input_projection) {
      sums_.input_proj.add(d_hidden, {all.frames + first, c_.d_input}, rows_, scratch_);
    }
    if (d_frames == nullptr) return;
    const std::int64_t step = padded(c_.d_input);
    AlignedBuffer back(c_.spec.input_projection ? rows_ * step : 0);
    if (c_.spec.input_projection) {
      sums_.input_proj.back(d_hidden, rows_, {back.data(), step}, Epilogue::store);
    }
    const float* from = c_.spec.input_projection ? back.data() : d_.hidden.data();
    for (std::int64_t row = 0; row < rows_; ++row) {
      std::copy_n(from + row * step, c_.d_input, d_frames + first + row * c_.d_input);
    }
  }

  const PackedWeights& w_;
  const core::PolicyConfig& c_;
  const SequenceGroup& group_;
  const GradientRecord& r_;
  GradientSums& sums_;
  ProductScratch& scratch_;
  BackRows& d_;
  const std::int64_t rows_;
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
    for (std::int64_t first = 0; first < sequences.batch; first += count) {
      run(SequenceGroup{&sequences, first, std::min(count, sequences.batch - first)});
    }
  };
  if (d_outs == nullptr) return each_group(forward);
  GradientSums sums(weights);
  ProductScratch scratch(sums.most_outs(), sums.most_depth());
  BackRows rows(record, sums, weights.config, count, seq);
  each_group([&](const SequenceGroup& group) {
    forward(group);
    Backward(packed, group, record, sums, scratch, rows).run(d_outs, outputs.frames);
  });
  if (outputs.weights != nullptr) sums.write(weights, outputs.weights);
}

}  // namespace exphil::host
