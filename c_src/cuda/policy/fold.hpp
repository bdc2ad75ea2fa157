// A policy's weights as its kernels run them, by lowered phases (cuda/policy/lower.hpp): what a product of
// the kernels has not is folded into its matrix and its bias. In a precision other than f32 the norms are in
// the weights already (core/policy/rounding.hpp), and no value here may change: the kernels subtract
// LayerNorm's mean. Used by the packers. A Folded refers to the PolicyWeights it was made of, which are
// immutable; safe to share.
//
// In f32:
// - A norm's weight goes into the columns of the matrix that follows, LayerNorm's bias into that matrix's
//   bias. LayerNorm's mean is subtracted from the rows of the matrix instead of from its argument, because
//   W (x - mean(x)) = (W - mean of each row of W) x.
// - The bias of what only one product reads goes through that product into its bias.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/config.hpp"
#include "cuda/policy/lower.hpp"

namespace exphil::cuda {

// {rows, columns}, seen with padding: zero outside. The matrix itself is where it was.
class FoldedMatrix {
 public:
  FoldedMatrix() = default;
  FoldedMatrix(const std::vector<float>& values, std::int64_t rows, std::int64_t columns)
      : values_(&values), rows_(rows), columns_(columns) {}
  // The identity.
  explicit FoldedMatrix(std::int64_t rows) : rows_(rows), columns_(rows) {}

  // Rows [first_row, ...) of `values` are meant.
  void start_at(std::int64_t first_row) { first_row_ = first_row; }
  // Multiplies the columns by `scale`, and then centres the rows.
  void scale(const std::vector<float>& scale, bool centred);

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

  const std::vector<float>* values_ = nullptr;  // null: the identity
  std::int64_t first_row_ = 0, rows_ = 0, columns_ = 0;
  const std::vector<float>* scale_ = nullptr;
  std::vector<double> means_;
};

// The rows of one output of a product.
struct FoldedRows {
  FoldedMatrix matrix;
  std::vector<float> bias;  // empty: zeros
};

struct FoldedPhase {
  std::vector<FoldedRows> outputs;  // of a product
  // What a convolution or a scan has for each channel: the taps and the bias; A and D. Empty: zeros.
  FoldedMatrix channels;
  std::vector<float> values;
};

struct Folded {
  Folded(const core::PolicyWeights& weights, const Lowered& lowered);
  Folded(const Folded&) = delete;
  Folded& operator=(const Folded&) = delete;

  std::vector<FoldedPhase> input;
  std::vector<std::vector<FoldedPhase>> layers;
  std::vector<FoldedPhase> output;
};

}  // namespace exphil::cuda
