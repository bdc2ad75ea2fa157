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

StoredLayer::StoredLayer(const FoldedLayer& layer, core::Precision precision)
    : in_proj(layer.in_proj, precision),
      x_proj(layer.x_proj, precision),
      dt_proj(layer.dt_proj, precision),
      out_proj(layer.out_proj, precision) {}

StoredPolicy::StoredPolicy(const Folded& folded, core::Precision precision)
    : input(folded.input, precision), hidden(folded.hidden, precision), head(folded.head, precision) {
  for (const FoldedLayer& layer : folded.layers) layers.emplace_back(layer, precision);
}

}  // namespace exphil::cuda
