#include "cuda/policy/stored.hpp"

namespace exphil::cuda {

float padded(const std::vector<float>& vector, std::int64_t i) {
  return i >= 0 && i < static_cast<std::int64_t>(vector.size()) ? vector[static_cast<std::size_t>(i)] : 0.0f;
}

StoredMatrix::StoredMatrix(const FoldedMatrix& matrix, core::Precision precision)
    : matrix_(&matrix), precision_(precision), scales_(static_cast<std::size_t>(matrix.rows()), 1.0f) {
  if (precision != core::Precision::int8 || matrix.is_identity()) return;  // the identity: 1 times 1
  std::vector<float> row(static_cast<std::size_t>(matrix.columns()));
  for (std::size_t i = 0; i < scales_.size(); ++i) {
    for (std::size_t k = 0; k < row.size(); ++k) {
      row[k] = matrix(static_cast<std::int64_t>(i), static_cast<std::int64_t>(k));
    }
    scales_[i] = core::row_scale(precision, row.data(), matrix.columns());
  }
}

float StoredMatrix::sum(std::int64_t row) const {
  double sum = 0;
  for (std::int64_t k = 0; k < matrix_->columns(); ++k) sum += static_cast<double>((*matrix_)(row, k));
  return static_cast<float>(sum);
}

void StoredMatrix::store(std::int64_t row, std::int64_t k, unsigned char* to, std::int64_t index) const {
  std::uint32_t bits = core::stored_bits(precision_, (*matrix_)(row, k), scale(row));
  if (precision_ == core::Precision::int8) bits ^= 0x80u;  // q + 128
  const int bytes = core::stored_bytes(precision_);
  for (int i = 0; i < bytes; ++i) to[index * bytes + i] = static_cast<unsigned char>(bits >> 8 * i);
}

StoredProduct::StoredProduct(const FoldedPhase& phase, const policy::Network& network,
                             const policy::Product& product, core::Precision precision) {
  for (std::size_t i = 0; i < phase.outputs.size(); ++i) {
    const int output = static_cast<int>(i);
    outputs_.push_back({policy::first_row(network, product, output), network.size(product.out[output].vector),
                        StoredMatrix(phase.outputs[i].matrix, precision), &phase.outputs[i].bias});
  }
}

// Of the output that the row is of; a row outside is one in no output's values.
const StoredProduct::Rows& StoredProduct::rows_of(std::int64_t row) const {
  for (const Rows& rows : outputs_) {
    if (row < rows.first + rows.count) return rows;
  }
  return outputs_.back();
}

float StoredProduct::bias(std::int64_t row) const {
  const Rows& rows = rows_of(row);
  return padded(*rows.bias, row - rows.first);
}
float StoredProduct::scale(std::int64_t row) const {
  const Rows& rows = rows_of(row);
  return rows.matrix.scale(row - rows.first);
}
float StoredProduct::sum(std::int64_t row) const {
  const Rows& rows = rows_of(row);
  return rows.matrix.sum(row - rows.first);
}
void StoredProduct::store(std::int64_t row, std::int64_t k, unsigned char* to, std::int64_t index) const {
  const Rows& rows = rows_of(row);
  rows.matrix.store(row - rows.first, k, to, index);
}

}  // namespace exphil::cuda
