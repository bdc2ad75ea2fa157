// Transposes rows {channels, row} to panels {blocks, row, kPanel} and back, for every state and every A.
// Works on 4 x 4 squares in registers; for a single step of the operator a plain loop took several times as
// long as the step itself. Compiled per SIMD target; included by recurrence-inl.hpp.
#if defined(EXPHIL_HOST_PANELS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPHIL_HOST_PANELS_INL
#undef EXPHIL_HOST_PANELS_INL
#else
#define EXPHIL_HOST_PANELS_INL
#endif

#include <hwy/highway.h>

#include "host/simd/simd.hpp"

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE std::int64_t transpose_squares(const float*, std::int64_t, float*, std::int64_t, std::int64_t) {
  return 0;
}
#else
// to[j][i] = from[i][j] for i < 4 and j < columns rounded down to a multiple of 4, which it returns.
HWY_INLINE std::int64_t transpose_squares(const float* from, std::int64_t from_step, float* to,
                                          std::int64_t to_step, std::int64_t columns) {
  const hn::FixedTag<float, 4> d;
  std::int64_t j = 0;
  for (; j + 4 <= columns; j += 4) {
    const auto row0 = hn::LoadU(d, from + j), row1 = hn::LoadU(d, from + from_step + j);
    const auto row2 = hn::LoadU(d, from + 2 * from_step + j), row3 = hn::LoadU(d, from + 3 * from_step + j);
    const auto low02 = hn::InterleaveLower(d, row0, row2), low13 = hn::InterleaveLower(d, row1, row3);
    const auto high02 = hn::InterleaveUpper(d, row0, row2), high13 = hn::InterleaveUpper(d, row1, row3);
    hn::StoreU(hn::InterleaveLower(d, low02, low13), d, to + j * to_step);
    hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, to + (j + 1) * to_step);
    hn::StoreU(hn::InterleaveLower(d, high02, high13), d, to + (j + 2) * to_step);
    hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, to + (j + 3) * to_step);
  }
  return j;
}
#endif

// {lanes, row} -> {row, kPanel}, lanes <= kPanel, zero padded.
inline void pack_block(const float* from, std::int64_t lanes, std::int64_t row, float* to) {
  std::int64_t lane = 0;
  for (; lane + 4 <= lanes; lane += 4) {
    const float* rows = from + lane * row;
    for (std::int64_t n = transpose_squares(rows, row, to + lane, kPanel, row); n < row; ++n) {
      for (std::int64_t i = 0; i < 4; ++i) to[n * kPanel + lane + i] = rows[i * row + n];
    }
  }
  for (; lane < kPanel; ++lane) {
    for (std::int64_t n = 0; n < row; ++n) to[n * kPanel + lane] = lane < lanes ? from[lane * row + n] : 0.0f;
  }
}

// Lanes [lane, last) of {row, kPanel} -> the same rows of {lanes, row}.
inline void unpack_lanes(const float* from, std::int64_t lane, std::int64_t last, std::int64_t row,
                         float* to) {
  const std::int64_t squares = row / 4 * 4;
  for (; lane + 4 <= last; lane += 4) {
    float* rows = to + lane * row;
    for (std::int64_t n = 0; n < squares; n += 4) {
      (void)transpose_squares(from + n * kPanel + lane, kPanel, rows + n, row, 4);
    }
    const std::int64_t done = HWY_TARGET == HWY_SCALAR ? 0 : squares;
    for (std::int64_t n = done; n < row; ++n) {
      for (std::int64_t i = 0; i < 4; ++i) rows[i * row + n] = from[n * kPanel + lane + i];
    }
  }
  for (; lane < last; ++lane) {
    for (std::int64_t n = 0; n < row; ++n) to[lane * row + n] = from[n * kPanel + lane];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
