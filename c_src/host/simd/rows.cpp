#include "host/simd/rows.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/simd/rows.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/simd/math-inl.hpp"
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
  constexpr std::int64_t kSquare = 16;  // rows and columns whose lines stay in L1
  for (std::int64_t row0 = 0; row0 < rows; row0 += kSquare) {
    const std::int64_t row1 = row0 + kSquare < rows ? row0 + kSquare : rows;
    for (std::int64_t k = 0; k < columns; ++k) {
      for (std::int64_t row = row0; row < row1; ++row) to[k * step + row] = from[row * from_step + k];
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

void add_rows(const float* from, std::int64_t rows, std::int64_t step, float* sums, std::int64_t begin,
              std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_add_rows)(from, rows, step, sums, begin, end);
}

void transpose(const float* from, std::int64_t from_step, std::int64_t rows, std::int64_t columns, float* to,
               std::int64_t step) {
  HWY_DYNAMIC_DISPATCH(run_transpose)(from, from_step, rows, columns, to, step);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
