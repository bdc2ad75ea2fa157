// A policy's weights as its kernels run them, by lowered phases (cuda/policy/lower.hpp): what a product of
// the kernels has not is folded into its matrix and its bias. In a precision other than f32 the norms are in
// the weights already (core/policy/rounding.hpp), and no value here may change: the kernels subtract
// LayerNorm's mean. Used by the packers. A Folded refers to the PolicyWeights it was made of, which are
// immutable; safe to share.
//
// Weights are stored as kernels/policy/weights.cuh says.
//
// In f32:
// - A norm's weight goes into the columns of the matrix that follows, LayerNorm's bias into that matrix's
//   bias. LayerNorm's mean is subtracted from the rows of the matrix instead of from its argument, because
//   W (x - mean(x)) = (W - mean of each row of W) x.
// In each precision the weights of a diagonal product, which are those of its norm, stay f32.
// - The bias of what only one product reads goes through that product into its bias.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/policy/config.hpp"
#include "core/precision.hpp"
#include "cuda/policy/lower.hpp"

namespace exphil::cuda {

// Value i of a vector; zero outside.
float padded(const std::vector<float>& vector, std::int64_t i);

// Adds to each sum the products of the values of its row of a matrix, [first, ...), and `times`, one after
// another in the order of the columns. matrix: null is the identity.
void add_products(const float* matrix, std::int64_t first, const std::vector<float>& times,
                  std::vector<double>* sums);

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
  // Each row is `times` rows, all of which rows() counts.
  void repeat(std::int64_t times) { times_ = times, rows_ *= times; }
  // Multiplies the columns by `scale`, and then centres the rows.
  void scale(const std::vector<float>& scale, bool centred);
  // Stored in this precision, after all of the above.
  void set_precision(core::Precision precision);
  // Makes row_sum(), after the scale.
  void sum_rows();

  // Columns [first, first + count) of a row.
  void read(std::int64_t row, std::int64_t first, std::int64_t count, float* to) const;
  float row_scale(std::int64_t row) const { return padded(row_scales_, row); }
  float row_sum(std::int64_t row) const { return padded(row_sums_, row); }
  // Puts the bits of `count` weights of each of `rows` rows, from column `first` on, into groups of four:
  // those of all `items` lie together, group after group, and the rows are items from `item` on. count: a
  // multiple of 4.
  void store(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t count, unsigned char* to,
             std::int64_t item, std::int64_t items) const;

 private:
  template <std::size_t kGroupBytes>
  void store_groups(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t count,
                    unsigned char* to, std::int64_t item, std::int64_t items) const;

  const std::vector<float>* values_ = nullptr;  // null: the identity
  std::int64_t first_row_ = 0, rows_ = 0, columns_ = 0, times_ = 1;
  const std::vector<float>* scale_ = nullptr;
  std::vector<double> means_;
  core::Precision precision_ = core::Precision::f32;
  std::vector<float> row_scales_, row_sums_;
};

// The rows of one output of a product, with padding [first, first + count) of the product's.
struct FoldedRows {
  FoldedMatrix matrix;
  std::vector<float> bias;  // empty: zeros
  std::int64_t first = 0, count = 0;
};

struct FoldedPhase {
  // Of a product: its rows are those of its outputs, each padded, one output after another
  // (policy::Network::rows).
  std::vector<FoldedRows> outputs;
  // What a convolution, a scan or a recurrence over heads has for each channel: the taps and the bias; A and
  // D. Of a gate: the weight of its norm. Of a rotation: its bias, by heads, and the weight of its norm.
  // Empty: zeros. With ranks, of heads and gates: the factors of each channel's ranks, one weight after
  // another.
  FoldedMatrix channels;
  std::vector<float> values;
  std::shared_ptr<const std::vector<float>> made;  // what `channels` refers to, where it is no weight

  // Of such a row: zeros in the padding and in any row outside.
  float bias(std::int64_t row) const { return padded(rows_of(row).bias, inside(row)); }
  float scale(std::int64_t row) const { return rows_of(row).matrix.row_scale(inside(row)); }
  float sum(std::int64_t row) const { return rows_of(row).matrix.row_sum(inside(row)); }
  void read(std::int64_t row, std::int64_t first, std::int64_t count, float* to) const {
    rows_of(row).matrix.read(inside(row), first, count, to);
  }
  void store(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t count, unsigned char* to,
             std::int64_t item, std::int64_t items) const;

 private:
  const FoldedRows& rows_of(std::int64_t row) const;  // the last output's where it is outside
  std::int64_t inside(std::int64_t row) const { return row - rows_of(row).first; }
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
