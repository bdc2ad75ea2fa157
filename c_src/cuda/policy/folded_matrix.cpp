#include <algorithm>
#include <cstring>
#include <type_traits>

#include "cuda/policy/fold.hpp"

namespace exphil::cuda {

void add_products(const float* matrix, std::int64_t first, const std::vector<float>& times,
                  std::vector<double>* sums) {
  const auto rows = static_cast<std::int64_t>(sums->size()),
             columns = static_cast<std::int64_t>(times.size());
  double* const to = sums->data();
  const auto add = [&](std::int64_t row, auto value) {
    double sum = to[row];
    for (std::int64_t k = 0; k < columns; ++k)
      sum += value(k) * static_cast<double>(times[static_cast<std::size_t>(k)]);
    to[row] = sum;
  };
  std::int64_t row = 0;
  // Four rows at a time, because each addition waits for the one before it.
  for (; matrix != nullptr && row + 4 <= rows; row += 4) {
    const float *const a = matrix + (first + row) * columns, *const b = a + columns, *const c = b + columns,
                       *const d = c + columns;
    double in_a = to[row], in_b = to[row + 1], in_c = to[row + 2], in_d = to[row + 3];
    for (std::int64_t k = 0; k < columns; ++k) {
      const auto factor = static_cast<double>(times[static_cast<std::size_t>(k)]);
      in_a += static_cast<double>(a[k]) * factor;
      in_b += static_cast<double>(b[k]) * factor;
      in_c += static_cast<double>(c[k]) * factor;
      in_d += static_cast<double>(d[k]) * factor;
    }
    to[row] = in_a, to[row + 1] = in_b, to[row + 2] = in_c, to[row + 3] = in_d;
  }
  for (; row < rows; ++row) {
    const std::int64_t own = first + row;
    matrix != nullptr
        ? add(row, [&](std::int64_t k) { return static_cast<double>(matrix[own * columns + k]); })
        : add(row, [&](std::int64_t k) { return k == own ? 1.0 : 0.0; });
  }
}

float padded(const std::vector<float>& vector, std::int64_t i) {
  return i >= 0 && i < static_cast<std::int64_t>(vector.size()) ? vector[static_cast<std::size_t>(i)] : 0.0f;
}

void FoldedMatrix::scale(const std::vector<float>& scale, bool centred) {
  scale_ = &scale;
  if (!centred) return;
  means_.assign(static_cast<std::size_t>(rows_), 0.0);
  add_products(values_ == nullptr ? nullptr : values_->data(), first_row_, scale, &means_);
  for (double& mean : means_) mean /= static_cast<double>(columns_);
}

void FoldedMatrix::set_precision(core::Precision precision) {
  precision_ = precision;
  row_scales_.assign(static_cast<std::size_t>(rows_), 1.0f);
  if (precision != core::Precision::int8) return;
  if (values_ == nullptr && scale_ == nullptr) return;  // the identity: 1 times 1
  std::vector<float> row(static_cast<std::size_t>(columns_));
  for (std::int64_t i = 0; i < rows_; ++i) {
    read(i, 0, columns_, row.data());
    row_scales_[static_cast<std::size_t>(i)] = core::row_scale(precision, row.data(), columns_);
  }
}

void FoldedMatrix::sum_rows() {
  constexpr std::int64_t kTogether = 4;
  const std::vector<float> ones(static_cast<std::size_t>(columns_), 1.0f);
  std::vector<float> some(static_cast<std::size_t>(kTogether * columns_));
  row_sums_.clear();
  for (std::int64_t row = 0; row < rows_; row += kTogether) {
    std::vector<double> sums(static_cast<std::size_t>(std::min(kTogether, rows_ - row)));
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto next = static_cast<std::int64_t>(i);
      read(row + next, 0, columns_, some.data() + next * columns_);
    }
    add_products(some.data(), 0, ones, &sums);
    for (const double sum : sums) row_sums_.push_back(static_cast<float>(sum));
  }
}

void FoldedMatrix::read(std::int64_t row, std::int64_t first, std::int64_t count, float* to) const {
  const std::int64_t inside =
      row < 0 || row >= rows_ ? 0 : std::clamp<std::int64_t>(columns_ - first, 0, count);
  std::fill(to + inside, to + count, 0.0f);
  if (inside == 0) return;
  const std::int64_t own = first_row_ + row / times_;
  const float* from = to;
  if (values_ != nullptr) {
    from = values_->data() + own * columns_ + first;
  } else {
    for (std::int64_t k = 0; k < inside; ++k) to[k] = first + k == own ? 1.0f : 0.0f;
  }
  if (scale_ == nullptr) {
    if (from != to) std::copy_n(from, inside, to);
    return;
  }
  const float* const scale = scale_->data() + first;
  const double mean = means_.empty() ? 0.0 : means_[static_cast<std::size_t>(row)];
  const auto some = [&](std::int64_t k, auto count) {
    double scaled[count()];
    for (int i = 0; i < count(); ++i)
      scaled[i] = static_cast<double>(from[k + i]) * static_cast<double>(scale[k + i]) - mean;
    for (int i = 0; i < count(); ++i) to[k + i] = static_cast<float>(scaled[i]);
  };
  std::int64_t k = 0;
  // Loops over four values are computed in vector registers at -O2; longer ones are not.
  for (; k + 4 <= inside; k += 4) some(k, std::integral_constant<int, 4>());
  for (; k < inside; ++k) some(k, std::integral_constant<int, 1>());
}

void FoldedMatrix::store(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t count,
                         unsigned char* to, std::int64_t item, std::int64_t items) const {
  switch (core::stored_bytes(precision_)) {
    case 4:
      return store_groups<16>(row, rows, first, count, to, item, items);
    case 2:
      return store_groups<8>(row, rows, first, count, to, item, items);
    default:
      return store_groups<4>(row, rows, first, count, to, item, items);
  }
}

template <std::size_t kGroupBytes>
void FoldedMatrix::store_groups(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t count,
                                unsigned char* to, std::int64_t item, std::int64_t items) const {
  constexpr std::int64_t kMost = 32;  // weights at a time
  float weights[kMost];
  unsigned char stored[kMost * sizeof(float)] = {};
  const bool exact = core::stores_f32(precision_);
  const auto* const bits = exact ? reinterpret_cast<const unsigned char*>(weights) : stored;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < count; k += kMost) {
      const std::int64_t some = std::min(kMost, count - k);
      read(row + i, first + k, some, weights);
      if (!exact) core::store_weights(precision_, weights, some, row_scale(row + i), stored);
      if (precision_ == core::Precision::int8) {
        for (unsigned char& q : stored) q ^= 0x80u;  // q + 128
      }
      unsigned char* const group = to + (k / 4 * items + item + i) * static_cast<std::int64_t>(kGroupBytes);
      for (std::int64_t j = 0; j < some / 4; ++j) {
        std::memcpy(group + j * items * static_cast<std::int64_t>(kGroupBytes),
                    bits + j * static_cast<std::int64_t>(kGroupBytes), kGroupBytes);
      }
    }
  }
}

}  // namespace exphil::cuda
