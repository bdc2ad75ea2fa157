#include <algorithm>

#include "core/parallel.hpp"
#include "host/policy/gradient_record.hpp"
#include "host/recurrence/gradient.hpp"
#include "host/simd/thread_scratch.hpp"

namespace exphil::host {

namespace {

constexpr std::int64_t kPieceRows = 48;  // rows in one piece of a thread

void product(const PackedMatrix& matrix, const float* x, std::int64_t x_step, std::int64_t rows, MatrixRows y,
             Epilogue epilogue) {
  core::parallel_for(rows, kPieceRows, [&](std::int64_t begin, std::int64_t end) {
    multiply(matrix, x + begin * x_step, x_step, end - begin, {y.data + begin * y.step, y.step}, epilogue, 0,
             panels(matrix.outs));
  });
}

// Of the whole call: a layer's state of one sequence in a {batch, n_layer, d_inner, columns} array, or null.
template <class Float>
Float* state_of(Float* all, const core::PolicyConfig& c, std::int64_t columns, std::int64_t sequence,
                std::int64_t layer) {
  return all == nullptr ? nullptr : all + (sequence * c.n_layer + layer) * c.d_inner * columns;
}

class Forward {
 public:
  Forward(const PackedWeights& weights, const SequenceGroup& group, const core::PolicyGradOutputs& outputs,
          GradientRecord& record)
      : w_(weights), c_(weights.config()), group_(group), out_(outputs), r_(record), rows_(group.rows()) {}

  void run() {
    begin();
    for (std::int64_t i = 0; i < c_.n_layer; ++i) run_layer(i);
    if (c_.spec.final_norm)
      norm(w_.norm_f(), r_.hidden, r_.final);
    else
      std::copy_n(r_.hidden, rows_ * r_.model, r_.final);
    answer();
  }

 private:
  std::int64_t seq() const { return group_.all->seq; }

  void begin() {
    float* first = r_.layers.empty() ? r_.hidden : r_.layers[0].in;
    const float* frames = group_.all->frames + group_.first * seq() * c_.d_input;
    if (c_.spec.input_projection) {
      return product(w_.input_proj(), frames, c_.d_input, rows_, {first, r_.model}, Epilogue::store);
    }
    for (std::int64_t row = 0; row < rows_; ++row) {
      std::copy_n(frames + row * c_.d_input, c_.d_input, first + row * r_.model);
    }
  }

  void norm(const Norm& norm, const float* from, float* to) const {
    core::parallel_for(rows_, kPieceRows, [&](std::int64_t begin, std::int64_t end) {
      normalize(norm, from + begin * r_.model, c_.d_model, c_.norm_epsilon, end - begin,
                to + begin * r_.model);
    });
  }

  void run_layer(std::int64_t index) {
    const PackedLayer& layer = w_.layers()[static_cast<std::size_t>(index)];
    const LayerRecord& l = r_.layers[static_cast<std::size_t>(index)];
    norm(layer.norm, l.in, l.normed);
    product(layer.in_x, l.normed, r_.model, rows_, {l.x, r_.inner}, Epilogue::store);
    product(layer.in_z, l.normed, r_.model, rows_, {l.z, r_.inner}, Epilogue::store);
    convolutions(index);
    product(layer.x_proj, l.s, r_.inner, rows_, {l.projected, r_.projected}, Epilogue::store);
    product(layer.dt_proj, l.projected, r_.projected, rows_, {l.dt, r_.inner}, Epilogue::store);
    if (c_.spec.input_dt == core::InputDt::mean) activate(layer, l);
    scans(index);
    const bool last = index + 1 == c_.n_layer;
    float* next = last ? r_.hidden : r_.layers[static_cast<std::size_t>(index + 1)].in;
    std::copy_n(l.in, rows_ * r_.model, next);
    product(layer.out_proj, l.gated, r_.inner, rows_, {next, r_.model}, Epilogue::add);
  }

  void convolutions(std::int64_t index) {
    const std::int64_t kept = c_.d_conv - 1, blocks = panels(c_.d_inner);
    const LayerRecord& l = r_.layers[static_cast<std::size_t>(index)];
    core::parallel_for(group_.count, 1, [&](std::int64_t begin, std::int64_t end) {
      AlignedBuffer after(kept * r_.inner);
      for (std::int64_t i = begin; i < end; ++i) {
        float* history = l.history + i * kept * r_.inner;
        const float* given = state_of(group_.all->conv, c_, kept, group_.first + i, index);
        for (std::int64_t k = 0; k < kept * c_.d_inner; ++k) {
          history[k % kept * r_.inner + k / kept] = given == nullptr ? 0.0f : given[k];
        }
        std::copy_n(history, kept * r_.inner, after.data());
        Convolution convolution = recorded_convolution(w_, group_, r_, index, i);
        convolution.history = after.data();
        convolve(convolution, 0, blocks);
        float* final = state_of(out_.conv, c_, kept, group_.first + i, index);
        for (std::int64_t k = 0; final != nullptr && k < kept * c_.d_inner; ++k) {
          final[k] = after.data()[k % kept * r_.inner + k / kept];
        }
      }
    });
  }

  void activate(const PackedLayer& layer, const LayerRecord& l) {
    core::parallel_for(rows_, kPieceRows, [&](std::int64_t begin, std::int64_t end) {
      float* active = l.active_dt + begin * r_.inner;
      std::copy_n(l.dt + begin * r_.inner, (end - begin) * r_.inner, active);
      activate_dt(active, layer.dt_bias, {c_.spec.dt_min, c_.spec.dt_max}, end - begin, r_.inner, 0,
                  panels(c_.d_inner));
      for (std::int64_t row = begin; row < end; ++row) {
        l.mean_dt[row] = mean_of(l.active_dt + row * r_.inner, c_.d_inner);
      }
    });
  }

  void scans(std::int64_t index) {
    const std::int64_t parts = parts_of(c_.d_inner), blocks = panels(c_.d_inner);
    const LayerRecord& l = r_.layers[static_cast<std::size_t>(index)];
    core::parallel_for(group_.count * parts, 1, [&](std::int64_t begin, std::int64_t end) {
      float* scratch = thread_scratch(Scratch::scan, scan_scratch_floats(w_.rule()));
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t sequence = i / parts, first = i % parts * kPartBlocks;
        ScanSequence scan = recorded_scan(w_, group_, r_, index, sequence);
        scan.y = l.gated + sequence * seq() * r_.inner;
        scan.y_step = r_.inner;
        scan.final_state = state_of(out_.ssm, c_, c_.d_state, group_.first + sequence, index);
        scan_channels(w_.rule(), scan, first, std::min(first + kPartBlocks, blocks), scratch);
      }
    });
  }

  void answer() {
    const float* from = r_.final;
    std::int64_t step = r_.model;
    if (w_.heads_hidden().outs > 0) {
      product(w_.heads_hidden(), from, step, rows_, {r_.head_hidden, r_.head_width}, Epilogue::store);
      relu(r_.head_hidden, rows_, r_.head_width, 0, panels(w_.heads_hidden().outs));
      from = r_.head_hidden, step = r_.head_width;
    }
    if (out_.outs == nullptr) return;
    if (w_.head().outs > 0) {
      product(w_.head(), from, step, rows_, {r_.head, r_.outputs}, Epilogue::store);
      from = r_.head, step = r_.outputs;
    }
    float* to = out_.outs + group_.first * seq() * c_.d_output;
    for (std::int64_t row = 0; row < rows_; ++row) {
      std::copy_n(from + row * step, c_.d_output, to + row * c_.d_output);
    }
  }

  const PackedWeights& w_;
  const core::PolicyConfig& c_;
  const SequenceGroup& group_;
  const core::PolicyGradOutputs& out_;
  GradientRecord& r_;
  const std::int64_t rows_;
};

}  // namespace

GradientRecord::GradientRecord(const PackedWeights& weights, std::int64_t count, std::int64_t seq)
    : model(padded(weights.config().d_model)),
      inner(padded(weights.config().d_inner)),
      projected(padded(weights.config().dt_rank + 2 * weights.config().d_state)),
      head_width(padded(weights.heads_hidden().outs)),
      outputs(padded(weights.config().d_output)) {
  const core::PolicyConfig& c = weights.config();
  const bool by_mean = c.spec.input_dt == core::InputDt::mean;
  const std::int64_t rows = count * seq;
  const std::int64_t of_layer = rows * (2 * model + (by_mean ? 6 : 5) * inner + projected) + padded(rows) +
                                count * (c.d_conv - 1) * inner;
  memory_ = AlignedBuffer(core::checked_multiply(c.n_layer, of_layer, "frames") +
                          rows * (2 * model + head_width + outputs));
  float* at = memory_.data();
  const auto take = [&at](std::int64_t floats) {
    float* taken = at;
    at += floats;
    return taken;
  };
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    LayerRecord l{};
    l.in = take(rows * model), l.normed = take(rows * model);
    l.x = take(rows * inner), l.s = take(rows * inner), l.z = take(rows * inner),
    l.gated = take(rows * inner);
    l.projected = take(rows * projected), l.dt = take(rows * inner);
    if (by_mean) l.active_dt = take(rows * inner);
    l.mean_dt = take(padded(rows));
    l.history = take(count * (c.d_conv - 1) * inner);
    layers.push_back(l);
  }
  hidden = take(rows * model), final = take(rows * model);
  head_hidden = take(rows * head_width), head = take(rows * outputs);
}

Convolution recorded_convolution(const PackedWeights& weights, const SequenceGroup& group,
                                 const GradientRecord& record, std::int64_t layer, std::int64_t sequence) {
  const PackedLayer& packed = weights.layers()[static_cast<std::size_t>(layer)];
  const LayerRecord& l = record.layers[static_cast<std::size_t>(layer)];
  const std::int64_t first = sequence * group.all->seq * record.inner;
  Convolution convolution;
  convolution.taps = weights.config().d_conv;
  convolution.step = record.inner;
  convolution.weights = packed.conv;
  convolution.bias = packed.conv_bias;
  convolution.history = l.history + sequence * (convolution.taps - 1) * record.inner;
  convolution.x = l.x + first;
  convolution.out = l.s + first;
  convolution.seq = group.all->seq;
  return convolution;
}

ScanSequence recorded_scan(const PackedWeights& weights, const SequenceGroup& group,
                           const GradientRecord& record, std::int64_t layer, std::int64_t sequence) {
  const core::PolicyConfig& c = weights.config();
  const PackedLayer& packed = weights.layers()[static_cast<std::size_t>(layer)];
  const LayerRecord& l = record.layers[static_cast<std::size_t>(layer)];
  const std::int64_t row = sequence * group.all->seq, at = row * record.inner;
  const float* b = l.projected + row * record.projected + c.dt_rank;
  const bool by_mean = c.spec.input_dt == core::InputDt::mean;
  ScanSequence scan;
  scan.seq = group.all->seq;
  scan.x = {l.s + at, record.inner};
  scan.dt = {(by_mean ? l.active_dt : l.dt) + at, record.inner};
  scan.z = {l.z + at, record.inner};
  scan.b = {b, record.projected, 1, false};
  scan.c = {b + c.d_state, record.projected, 1, false};
  scan.a_panels = packed.a;
  scan.a_bounds = packed.a_bounds;
  scan.d = packed.d;
  if (by_mean)
    scan.input_dt = l.mean_dt + row;
  else
    scan.dt_bias = packed.dt_bias;
  scan.decays_input = group.all->decays_input(c.spec);
  scan.initial_state = state_of(group.all->ssm, c, c.d_state, group.first + sequence, layer);
  return scan;
}

void record_forward(const PackedWeights& weights, const SequenceGroup& group,
                    const core::PolicyGradOutputs& outputs, GradientRecord& record) {
  Forward(weights, group, outputs, record).run();
}

}  // namespace exphil::host
