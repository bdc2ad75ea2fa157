#include "cuda/policy/fold.hpp"

#include <algorithm>

#include "core/policy/heads.hpp"

namespace exphil::cuda {
namespace {

// bias + matrix {rows, columns} times vector; either may be empty.
std::vector<float> added(const std::vector<float>& bias, const std::vector<float>& matrix,
                         const std::vector<float>& vector, std::int64_t rows) {
  if (vector.empty()) return bias;
  const std::size_t columns = vector.size();
  std::vector<float> sums(static_cast<std::size_t>(rows));
  for (std::size_t row = 0; row < sums.size(); ++row) {
    double sum = bias.empty() ? 0.0 : static_cast<double>(bias[row]);
    for (std::size_t k = 0; k < columns; ++k) {
      const double value =
          matrix.empty() ? (k == row ? 1.0 : 0.0) : static_cast<double>(matrix[row * columns + k]);
      sum += value * static_cast<double>(vector[k]);
    }
    sums[row] = static_cast<float>(sum);
  }
  return sums;
}

// The rows of a matrix behind a LayerNorm are centred. Rounded weights may not change.
bool centres_rows(const core::PolicyConfig& c) {
  return c.spec.norm == core::NormKind::layer && c.precision == core::Precision::f32;
}

FoldedLayer fold(const core::PolicyConfig& c, const core::PolicyLayerWeights& from) {
  const bool centred = centres_rows(c);
  FoldedLayer to;
  to.in_proj = FoldedMatrix(from.in_proj, 2 * c.d_inner, from.norm, centred);
  to.in_proj_bias = from.in_proj_bias;
  if (centred) to.in_proj_bias = added(from.in_proj_bias, from.in_proj, from.norm_bias, 2 * c.d_inner);
  to.x_proj = FoldedMatrix(from.x_proj, c.dt_rank + 2 * c.d_state, c.d_inner);
  to.dt_proj = FoldedMatrix(from.dt_proj, c.d_inner, c.dt_rank);
  to.dt_proj_bias = from.dt_proj_bias;
  to.x_proj_bias = from.x_proj_bias;
  if (!from.x_proj_bias.empty()) {
    const auto first = to.x_proj_bias.begin();
    to.dt_proj_bias = added(from.dt_proj_bias, from.dt_proj, {first, first + c.dt_rank}, c.d_inner);
    std::fill(first, first + c.dt_rank, 0.0f);
  }
  to.out_proj = FoldedMatrix(from.out_proj, c.d_model, c.d_inner);
  return to;
}

}  // namespace

FoldedMatrix::FoldedMatrix(const std::vector<float>& values, std::int64_t rows,
                           const std::vector<float>& scale, bool centred)
    : values_(&values), rows_(rows), columns_(static_cast<std::int64_t>(scale.size())), scale_(&scale) {
  if (centred) centre();
}

FoldedMatrix FoldedMatrix::identity(std::int64_t rows) {
  FoldedMatrix made;
  made.rows_ = made.columns_ = rows;
  return made;
}

FoldedMatrix FoldedMatrix::diagonal(const std::vector<float>& scale, bool centred) {
  FoldedMatrix made = identity(static_cast<std::int64_t>(scale.size()));
  made.scale_ = &scale;
  if (centred) made.centre();
  return made;
}

double FoldedMatrix::scaled(std::int64_t row, std::int64_t column) const {
  const auto at = static_cast<std::size_t>(row * columns_ + column), k = static_cast<std::size_t>(column);
  const double value = values_ != nullptr ? static_cast<double>((*values_)[at]) : row == column ? 1.0 : 0.0;
  return scale_ == nullptr ? value : value * static_cast<double>((*scale_)[k]);
}

void FoldedMatrix::centre() {
  means_.resize(static_cast<std::size_t>(rows_));
  for (std::int64_t row = 0; row < rows_; ++row) {
    double sum = 0;
    for (std::int64_t k = 0; k < columns_; ++k) sum += scaled(row, k);
    means_[static_cast<std::size_t>(row)] = sum / static_cast<double>(columns_);
  }
}

Folded::Folded(const core::PolicyWeights& weights) {
  const core::PolicyConfig& c = weights.config;
  const bool centred = centres_rows(c) && c.spec.final_norm;
  input = c.spec.input_projection ? FoldedMatrix(weights.input_proj, c.d_model, c.d_input)
                                  : FoldedMatrix::identity(c.d_model);
  if (c.spec.input_projection) input_bias = weights.input_proj_bias;
  for (const core::PolicyLayerWeights& layer : weights.layers) layers.push_back(fold(c, layer));
  // What reads the final hidden state, and its bias.
  const auto last = [&](const std::vector<float>& matrix, std::int64_t rows) {
    if (!c.spec.final_norm) {
      return matrix.empty() ? FoldedMatrix::identity(rows) : FoldedMatrix(matrix, rows, c.d_model);
    }
    return matrix.empty() ? FoldedMatrix::diagonal(weights.norm_f, centred)
                          : FoldedMatrix(matrix, rows, weights.norm_f, centred);
  };
  const auto last_bias = [&](const std::vector<float>& bias, const std::vector<float>& matrix,
                             std::int64_t rows) {
    return centred ? added(bias, matrix, weights.norm_f_bias, rows) : bias;
  };
  if (weights.heads.empty()) {
    head = last(weights.head, c.d_output);
    head_bias = last_bias(weights.head_bias, weights.head, c.d_output);
    return;
  }
  joined_ = core::joined_heads(weights.heads);
  hidden = last(joined_.hidden, joined_.width());
  hidden_bias = last_bias(joined_.hidden_bias, joined_.hidden, joined_.width());
  head = FoldedMatrix(joined_.out, c.d_output, joined_.width());
  head_bias = joined_.out_bias;
}

}  // namespace exphil::cuda
