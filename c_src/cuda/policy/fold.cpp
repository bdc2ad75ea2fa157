#include "cuda/policy/fold.hpp"

#include <algorithm>

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
bool centres_rows(const core::PolicyWeights& w, const core::mamba1::Form& form) {
  return form.config.spec.norm == core::NormKind::layer && w.config.precision == core::Precision::f32;
}

FoldedLayer fold(const core::PolicyWeights& w, const core::mamba1::Form& form,
                 const core::mamba1::LayerIds& ids) {
  const core::mamba1::Config& c = form.config;
  const auto of = [&w](core::WeightId id) -> const std::vector<float>& {
    return core::values_of(w.values, id);
  };
  const bool centred = centres_rows(w, form);
  FoldedLayer to;
  to.in_proj = FoldedMatrix(of(ids.in_proj), 2 * c.d_inner, of(ids.norm), centred);
  to.in_proj_bias = of(ids.in_proj_bias);
  if (centred) to.in_proj_bias = added(to.in_proj_bias, of(ids.in_proj), of(ids.norm_bias), 2 * c.d_inner);
  to.conv = FoldedMatrix(of(ids.conv), c.d_inner, c.d_conv);
  to.conv_bias = of(ids.conv_bias);
  to.x_proj = FoldedMatrix(of(ids.x_proj), c.dt_rank + 2 * c.d_state, c.d_inner);
  to.dt_proj = FoldedMatrix(of(ids.dt_proj), c.d_inner, c.dt_rank);
  to.dt_proj_bias = of(ids.dt_bias);
  to.x_proj_bias = of(ids.x_proj_bias);
  if (!to.x_proj_bias.empty()) {
    const auto first = to.x_proj_bias.begin();
    to.dt_proj_bias = added(of(ids.dt_bias), of(ids.dt_proj), {first, first + c.dt_rank}, c.d_inner);
    std::fill(first, first + c.dt_rank, 0.0f);
  }
  to.a = FoldedMatrix(of(ids.a), c.d_inner, c.d_state);
  to.d = of(ids.d);
  to.out_proj = FoldedMatrix(of(ids.out_proj), c.d_model, c.d_inner);
  to.out_proj_bias = of(ids.out_proj_bias);
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

Folded::Folded(const core::PolicyWeights& weights, const core::mamba1::Form& form) {
  const core::mamba1::Config& c = form.config;
  const core::mamba1::Ids& ids = form.ids;
  const auto of = [&](core::WeightId id) -> const std::vector<float>& {
    return core::values_of(weights.values, id);
  };
  const bool centred = centres_rows(weights, form) && c.spec.final_norm;
  input = c.spec.input_projection ? FoldedMatrix(of(ids.input_proj), c.d_model, c.d_input)
                                  : FoldedMatrix::identity(c.d_model);
  input_bias = of(ids.input_proj_bias);
  for (const core::mamba1::LayerIds& layer : ids.layers) layers.push_back(fold(weights, form, layer));
  // What reads the final hidden state, and its bias.
  const auto last = [&](core::WeightId id, std::int64_t rows) {
    if (!c.spec.final_norm) {
      return id == core::kNone ? FoldedMatrix::identity(rows) : FoldedMatrix(of(id), rows, c.d_model);
    }
    return id == core::kNone ? FoldedMatrix::diagonal(of(ids.norm_f), centred)
                             : FoldedMatrix(of(id), rows, of(ids.norm_f), centred);
  };
  const auto last_bias = [&](core::WeightId bias, core::WeightId matrix, std::int64_t rows) {
    return centred ? added(of(bias), of(matrix), of(ids.norm_f_bias), rows) : of(bias);
  };
  if (ids.hidden == core::kNone) {
    head = last(ids.head, c.d_output);
    head_bias = last_bias(ids.head_bias, ids.head, c.d_output);
    return;
  }
  hidden = last(ids.hidden, form.head_width);
  hidden_bias = last_bias(ids.hidden_bias, ids.hidden, form.head_width);
  head = FoldedMatrix(of(ids.head), c.d_output, form.head_width);
  head_bias = of(ids.head_bias);
}

}  // namespace exphil::cuda
