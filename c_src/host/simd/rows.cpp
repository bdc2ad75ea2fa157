#include "host/simd/rows.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/simd/rows.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/simd/math-inl.hpp"
#include "host/simd/panels-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

void run_add_rows(const float* from, std::int64_t rows, std::int64_t step, float* sums, std::int64_t begin,
                  std::int64_t end) {
  for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) {
    F sum = load(sums + i);
    for (std::int64_t row = 0; row < rows; ++row) sum = sum + load(from + row * step + i);
    store(sum, sums + i);
  }
}

void run_transpose(const float* from, std::int64_t from_step, std::int64_t rows, std::int64_t columns,
                   float* to, std::int64_t step) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const float* const four = from + row * from_step;
    for (std::int64_t k = transpose_squares(four, from_step, to + row, step, columns); k < columns; ++k) {
      for (std::int64_t i = 0; i < 4; ++i) to[k * step + row + i] = four[i * from_step + k];
    }
  }
  for (; row < rows; ++row) {
    for (std::int64_t k = 0; k < columns; ++k) to[k * step + row] = from[row * from_step + k];
  }
}

void run_pack_rows(const float* from, std::int64_t from_step, std::int64_t rows, std::int64_t columns,
                   float* to) {
  for (std::int64_t row = 0; row < rows; ++row, from += from_step, to += kPanel) {
    std::int64_t i = 0;
    for (; i + kPanel <= columns; i += kPanel) {
      for (std::int64_t o = 0; o < kPanel; o += kLanes) store(load(from + i + o), to + i * rows + o);
    }
    if (i < columns) {
      float* const rest = to + i * rows;
      std::fill(std::copy(from + i, from + columns, rest), rest + kPanel, 0.0f);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {

HWY_EXPORT(run_add_rows);
HWY_EXPORT(run_transpose);
HWY_EXPORT(run_pack_rows);

void add_rows(const float* from, std::int64_t rows, std::int64_t step, float* sums, std::int64_t begin,
              std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_add_rows)(from, rows, step, sums, begin, end);
}

void transpose(const float* from, std::int64_t from_step, std::int64_t rows, std::int64_t columns, float* to,
               std::int64_t step) {
  HWY_DYNAMIC_DISPATCH(run_transpose)(from, from_step, rows, columns, to, step);
}

void pack_rows(const float* from, std::int64_t from_step, std::int64_t rows, std::int64_t columns,
               float* to) {
  HWY_DYNAMIC_DISPATCH(run_pack_rows)(from, from_step, rows, columns, to);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
