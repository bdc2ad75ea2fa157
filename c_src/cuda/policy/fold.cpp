#include "cuda/policy/fold.hpp"

#include <algorithm>

#include "core/work/parallel.hpp"

namespace exphil::cuda {
namespace {

using Values = std::vector<float>;

Values slice(const Values& values, std::int64_t first, std::int64_t count) {
  if (values.empty()) return {};
  return {values.begin() + first, values.begin() + first + count};
}

// bias + rows [first, first + rows) of a matrix times vector; bias and matrix may be empty.
Values added(const Values& bias, const Values& matrix, std::int64_t first, const Values& vector,
             std::int64_t rows) {
  if (vector.empty()) return bias;
  std::vector<double> sums(static_cast<std::size_t>(rows));
  std::copy_n(bias.begin(), bias.size(), sums.begin());
  add_products(matrix.empty() ? nullptr : matrix.data(), first, vector, &sums);
  Values values(sums.size());
  std::transform(sums.begin(), sums.end(), values.begin(),
                 [](double sum) { return static_cast<float>(sum); });
  return values;
}

Values sum_of(const Values& left, const Values& right) {
  if (left.empty()) return right;
  Values sum = left;
  for (std::size_t i = 0; i < right.size(); ++i) sum[i] += right[i];
  return sum;
}

class Fold {
 public:
  Fold(const core::PolicyWeights& weights, const policy::Network& network) : w_(weights), network_(network) {}

  FoldedPhase fold(const LoweredPhase& phase) const {
    FoldedPhase to;
    std::int64_t first = 0;
    for (const LoweredRows& rows : phase.outputs) {
      const policy::Product& product = network_.products[phase.phase.index];
      FoldedRows made = fold(phase, rows);
      if (!product.diagonal) made.matrix.set_precision(w_.config.precision);
      if (product.diagonal || network_.centres(product)) made.matrix.sum_rows();
      made.first = first, made.count = network_.size(product.out[to.outputs.size()].vector);
      first += made.count;
      to.outputs.push_back(std::move(made));
    }
    if (phase.phase.kind == policy::Kind::heads) return heads(phase);
    to.values = of(phase.vector);
    if (!phase.scales.empty()) add_ranks(phase, network_.gates[phase.phase.index].ranks, &to);
    if (phase.matrix == core::kNone) return to;
    const core::Weight& matrix = w_.network().weight(phase.matrix);
    const bool convolves = phase.phase.kind == policy::Kind::convolution;
    if (phase.phase.kind == policy::Kind::rotation) {
      to.channels = FoldedMatrix(of(phase.matrix), matrix.rows, matrix.columns);
      return to;
    }
    const std::int64_t channels =
        convolves ? network_.values(network_.convolutions[phase.phase.index].in) : matrix.rows;
    to.channels = FoldedMatrix(of(phase.matrix), channels, matrix.columns);
    to.channels.start_at(phase.first_channel);
    to.values = slice(to.values, phase.first_channel, channels);
    return to;
  }

 private:
  const Values& of(core::WeightId id) const { return core::values_of(w_.values, id); }

  // Of weights {heads, ranks channels}: for each channel of a head those of its ranks.
  void add_ranks(const LoweredPhase& phase, std::int64_t ranks, FoldedPhase* to) const {
    auto made = std::make_shared<Values>();
    const core::Weight& shape = w_.network().weight(phase.scales.front());
    const std::int64_t own = shape.columns / ranks, channels = shape.rows * own;  // own: of a head
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      for (const core::WeightId weight : phase.scales) {
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          const std::int64_t row = channel / own * ranks + rank;
          made->push_back(of(weight)[static_cast<std::size_t>(row * own + channel % own)]);
        }
      }
    }
    to->channels = FoldedMatrix(*made, channels, ranks * static_cast<std::int64_t>(phase.scales.size()));
    to->made = std::move(made);
  }

  // A and D of a head, for each of its values.
  FoldedPhase heads(const LoweredPhase& phase) const {
    const policy::Heads& heads = network_.heads[phase.phase.index];
    const std::int64_t rows = network_.values(heads.value), times = rows / heads.heads;
    FoldedPhase to;
    if (heads.rule == formulas::HeadRule::linear) {
      to.channels = FoldedMatrix(of(phase.matrix), heads.heads, 1);
      to.channels.repeat(times);
    } else if (heads.ranked) {
      add_ranks(phase, heads.ranks, &to);
    }
    to.values = of(phase.vector);
    if (static_cast<std::int64_t>(to.values.size()) != heads.heads) return to;
    Values all(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = to.values[i / static_cast<std::size_t>(times)];
    to.values = all;
    return to;
  }

  FoldedRows fold(const LoweredPhase& phase, const LoweredRows& rows) const {
    FoldedRows to;
    const Values& matrix = of(rows.weight);
    to.matrix =
        rows.weight == core::kNone ? FoldedMatrix(rows.rows) : FoldedMatrix(matrix, rows.rows, phase.columns);
    to.matrix.start_at(rows.first_row);
    to.bias = sum_of(slice(of(rows.bias), rows.first_row, rows.rows), of(rows.activation_bias));
    if (phase.norm != core::kNone) {
      // Rounded weights may not change.
      const policy::Product& product = network_.products[phase.phase.index];
      const bool centred = product.norm == policy::Norm::layer && !network_.centres(product);
      to.matrix.scale(of(phase.norm), centred);
      if (centred) to.bias = added(to.bias, matrix, rows.first_row, of(phase.norm_bias), rows.rows);
      if (product.diagonal) to.bias = of(phase.norm_bias);
    }
    const LoweredRows& before = phase.input_bias;
    const Values bias = slice(of(before.bias), before.first_row, before.rows);
    to.bias = added(to.bias, matrix, rows.first_row, bias, rows.rows);
    return to;
  }

  const core::PolicyWeights& w_;
  const policy::Network& network_;
};

}  // namespace

void FoldedPhase::store(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t count,
                        unsigned char* to, std::int64_t item, std::int64_t items) const {
  for (std::int64_t done = 0; done < rows;) {
    const FoldedRows& of = rows_of(row + done);
    const std::int64_t own = row + done - of.first;
    const std::int64_t some = &of == &outputs.back() ? rows - done : std::min(rows - done, of.count - own);
    of.matrix.store(own, some, first, count, to, item + done, items);
    done += some;
  }
}

const FoldedRows& FoldedPhase::rows_of(std::int64_t row) const {
  for (const FoldedRows& rows : outputs) {
    if (row < rows.first + rows.count) return rows;
  }
  return outputs.back();
}

Folded::Folded(const core::PolicyWeights& weights, const Lowered& lowered) : layers(lowered.layers.size()) {
  struct Work {
    const LoweredPhase* from;
    FoldedPhase* to;
  };
  std::vector<Work> work;
  const auto add = [&work](const LoweredBlock& block, std::vector<FoldedPhase>* to) {
    to->resize(block.size());
    for (std::size_t i = 0; i < block.size(); ++i) work.push_back({&block[i], &(*to)[i]});
  };
  add(lowered.input, &input);
  for (std::size_t i = 0; i < layers.size(); ++i) add(lowered.layers[i], &layers[i]);
  add(lowered.output, &output);
  const Fold fold(weights, lowered.network);
  core::parallel_for(static_cast<std::int64_t>(work.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      *work[i].to = fold.fold(*work[i].from);
    }
  });
}

}  // namespace exphil::cuda
