#include "cuda/policy/fold.hpp"

#include <algorithm>
#include <cstring>

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
  const std::size_t columns = vector.size();
  Values sums(static_cast<std::size_t>(rows));
  for (std::size_t row = 0; row < sums.size(); ++row) {
    double sum = bias.empty() ? 0.0 : static_cast<double>(bias[row]);
    const std::size_t from = static_cast<std::size_t>(first) + row;
    for (std::size_t k = 0; k < columns; ++k) {
      const double value =
          matrix.empty() ? (k == from ? 1.0 : 0.0) : static_cast<double>(matrix[from * columns + k]);
      sum += value * static_cast<double>(vector[k]);
    }
    sums[row] = static_cast<float>(sum);
  }
  return sums;
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

  std::vector<FoldedPhase> block(const LoweredBlock& block) const {
    std::vector<FoldedPhase> folded;
    for (const LoweredPhase& phase : block) folded.push_back(fold(phase));
    return folded;
  }

 private:
  const Values& of(core::WeightId id) const { return core::values_of(w_.values, id); }

  FoldedPhase fold(const LoweredPhase& phase) const {
    FoldedPhase to;
    std::int64_t first = 0;
    for (const LoweredRows& rows : phase.outputs) {
      const policy::Product& product = network_.products[phase.phase.index];
      FoldedRows made = fold(phase, rows);
      if (!product.diagonal) made.matrix.set_precision(w_.config.precision);
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

float padded(const Values& vector, std::int64_t i) {
  return i >= 0 && i < static_cast<std::int64_t>(vector.size()) ? vector[static_cast<std::size_t>(i)] : 0.0f;
}

double FoldedMatrix::scaled(std::int64_t row, std::int64_t column) const {
  const auto at = static_cast<std::size_t>((first_row_ + row / times_) * columns_ + column);
  const double value = values_ != nullptr           ? static_cast<double>((*values_)[at])
                       : first_row_ + row == column ? 1.0
                                                    : 0.0;
  return scale_ == nullptr ? value : value * static_cast<double>((*scale_)[static_cast<std::size_t>(column)]);
}

void FoldedMatrix::scale(const std::vector<float>& scale, bool centred) {
  scale_ = &scale;
  if (!centred) return;
  means_.resize(static_cast<std::size_t>(rows_));
  for (std::int64_t row = 0; row < rows_; ++row) {
    double sum = 0;
    for (std::int64_t k = 0; k < columns_; ++k) sum += scaled(row, k);
    means_[static_cast<std::size_t>(row)] = sum / static_cast<double>(columns_);
  }
}

void FoldedMatrix::set_precision(core::Precision precision) {
  precision_ = precision;
  row_scales_.assign(static_cast<std::size_t>(rows_), 1.0f);
  if (precision != core::Precision::int8) return;
  if (values_ == nullptr && scale_ == nullptr) return;  // the identity: 1 times 1
  Values row(static_cast<std::size_t>(columns_));
  for (std::int64_t i = 0; i < rows_; ++i) {
    for (std::int64_t k = 0; k < columns_; ++k) row[static_cast<std::size_t>(k)] = (*this)(i, k);
    row_scales_[static_cast<std::size_t>(i)] = core::row_scale(precision, row.data(), columns_);
  }
}

float FoldedMatrix::row_sum(std::int64_t row) const {
  double sum = 0;
  for (std::int64_t k = 0; k < columns_; ++k) sum += static_cast<double>((*this)(row, k));
  return static_cast<float>(sum);
}

void FoldedMatrix::read(std::int64_t row, std::int64_t first, int count, float* to) const {
  if (row < 0 || row >= rows_ || first < 0 || first + count > columns_ || values_ == nullptr) {
    for (int k = 0; k < count; ++k) to[k] = (*this)(row, first + k);
    return;
  }
  const float* const from = values_->data() + (first_row_ + row) * columns_ + first;
  const double mean = means_.empty() ? 0.0 : means_[static_cast<std::size_t>(row)];
  if (scale_ == nullptr) {
    for (int k = 0; k < count; ++k) to[k] = static_cast<float>(static_cast<double>(from[k]) - mean);
    return;
  }
  const float* const scale = scale_->data() + first;
  for (int k = 0; k < count; ++k) {
    to[k] = static_cast<float>(static_cast<double>(from[k]) * static_cast<double>(scale[k]) - mean);
  }
}

void FoldedMatrix::store(std::int64_t row, std::int64_t first, std::int64_t count, unsigned char* to,
                         std::int64_t item, std::int64_t items) const {
  const float scale = row_scale(row);
  const auto bytes = static_cast<std::size_t>(core::stored_bytes(precision_));
  for (std::int64_t k = 0; k < count; k += 4) {
    float group[4];
    read(row, first + k, 4, group);
    unsigned char* const at = to + static_cast<std::size_t>(k * items + item * 4) * bytes;
    if (core::stores_f32(precision_)) {
      std::memcpy(at, group, sizeof group);
      continue;
    }
    for (std::size_t i = 0; i < 4; ++i) {
      std::uint32_t bits = core::stored_bits(precision_, group[i], scale);
      if (precision_ == core::Precision::int8) bits ^= 0x80u;  // q + 128
      std::memcpy(at + i * bytes, &bits, bytes);               // little-endian, as the device
    }
  }
}

const FoldedRows& FoldedPhase::rows_of(std::int64_t row) const {
  for (const FoldedRows& rows : outputs) {
    if (row < rows.first + rows.count) return rows;
  }
  return outputs.back();
}

Folded::Folded(const core::PolicyWeights& weights, const Lowered& lowered) {
  const Fold fold(weights, lowered.network);
  input = fold.block(lowered.input);
  for (const LoweredBlock& layer : lowered.layers) layers.push_back(fold.block(layer));
  output = fold.block(lowered.output);
}

}  // namespace exphil::cuda
