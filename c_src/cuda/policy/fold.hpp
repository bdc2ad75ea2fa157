// A policy's linear maps as its kernels run them: what a dialect has and the kernels have not is folded into
// the weights. In a precision other than f32 the norms are in the weights already
// (core/policy/rounding.hpp), and no value here may change: the kernels subtract LayerNorm's mean. Used by
// cuda/policy/pack.cpp. A Folded refers to the PolicyWeights it was made of, which are immutable; safe to
// share.
//
// In f32:
// - A norm's weight goes into the columns of the matrix that follows, LayerNorm's bias into that matrix's
//   bias. LayerNorm's mean is subtracted from the rows of the matrix instead of from its argument, because
//   W (x - mean(x)) = (W - mean of each row of W) x.
// - x_proj's bias of dt goes through dt_proj into its bias.
// - No input projection, or no head, is the identity. No D is zeros, as a bias that is missing.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/config.hpp"
#include "core/trunk/mamba1/mamba1.hpp"

namespace exphil::cuda {

// {rows, columns}, seen with padding: zero outside. The matrix itself is where it was.
class FoldedMatrix {
 public:
  FoldedMatrix() = default;
  FoldedMatrix(const std::vector<float>& values, std::int64_t rows, std::int64_t columns)
      : values_(&values), rows_(rows), columns_(columns) {}
  // Its columns multiplied by `scale`, its rows then centred.
  FoldedMatrix(const std::vector<float>& values, std::int64_t rows, const std::vector<float>& scale,
               bool centred);
  static FoldedMatrix identity(std::int64_t rows);
  // The same of the identity.
  static FoldedMatrix diagonal(const std::vector<float>& scale, bool centred);

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  bool is_identity() const { return values_ == nullptr && scale_ == nullptr; }

  float operator()(std::int64_t row, std::int64_t column) const {
    if (row < 0 || row >= rows_ || column < 0 || column >= columns_) return 0.0f;
    return static_cast<float>(scaled(row, column) -
                              (means_.empty() ? 0.0 : means_[static_cast<std::size_t>(row)]));
  }

 private:
  double scaled(std::int64_t row, std::int64_t column) const;
  void centre();

  const std::vector<float>* values_ = nullptr;  // null: the identity
  std::int64_t rows_ = 0, columns_ = 0;
  const std::vector<float>* scale_ = nullptr;
  std::vector<double> means_;
};

struct FoldedLayer {
  FoldedMatrix in_proj, x_proj, dt_proj, out_proj, conv, a;
  // Empty: zeros. x_proj's is zero for dt.
  std::vector<float> in_proj_bias, x_proj_bias, dt_proj_bias, out_proj_bias, conv_bias, d;
};

struct Folded {
  Folded(const core::PolicyWeights& weights, const core::mamba1::Form& form);
  Folded(const Folded&) = delete;
  Folded& operator=(const Folded&) = delete;

  FoldedMatrix input, hidden, head;  // hidden: without rows where the head is one linear map
  std::vector<float> input_bias, hidden_bias, head_bias;
  std::vector<FoldedLayer> layers;
};

}  // namespace exphil::cuda
