#include "cuda/policy/fold.hpp"

#include <algorithm>

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
    for (const LoweredRows& rows : phase.outputs) to.outputs.push_back(fold(phase, rows));
    if (phase.matrix == core::kNone) return to;
    const core::Weight& matrix = w_.network().weight(phase.matrix);
    to.channels = FoldedMatrix(of(phase.matrix), matrix.rows, matrix.columns);
    to.values = of(phase.vector);
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

double FoldedMatrix::scaled(std::int64_t row, std::int64_t column) const {
  const auto at = static_cast<std::size_t>((first_row_ + row) * columns_ + column);
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

Folded::Folded(const core::PolicyWeights& weights, const Lowered& lowered) {
  const Fold fold(weights, lowered.network);
  input = fold.block(lowered.input);
  for (const LoweredBlock& layer : lowered.layers) layers.push_back(fold.block(layer));
  output = fold.block(lowered.output);
}

}  // namespace exphil::cuda
