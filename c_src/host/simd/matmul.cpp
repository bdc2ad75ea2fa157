#include "host/simd/matmul.hpp"
#include "core/background.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/simd/matmul.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/simd/math-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

// A register tile of rows x panels needs 2 x rows x panels x kVectors sums: 24 of AVX-512's 32 registers, 12
// of AVX2's 16.
inline constexpr int kTileRows = kVectors == 1 ? 6 : 3;
inline constexpr int kTilePanels = kVectors == 1 ? 2 : 1;
// One row keeps 2 x 4 chains in flight: a core's 2 fma units times their 4 cycles.
inline constexpr int kRowPanels = 4;

template <int kRows, int kPanels>
struct Sums {
  F even[kRows][kPanels][kVectors], odd[kRows][kPanels][kVectors];
};

template <int kRows, int kPanels>
HWY_INLINE void accumulate(const float* w, std::int64_t panel_step, const float* x, std::int64_t x_step,
                           F (&sums)[kRows][kPanels][kVectors]) {
  HWY_UNROLL(8)
  for (int p = 0; p < kPanels; ++p) {
    HWY_UNROLL(16)
    for (int v = 0; v < kVectors; ++v) {
      const F weight = load(w + p * panel_step + v * kLanes);
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        sums[r][p][v] = hn::MulAdd(broadcast(x + r * x_step), weight, sums[r][p][v]);
      }
    }
  }
}

template <int kRows, int kPanels>
void tile(const PackedMatrix& matrix, std::int64_t panel, const float* x, std::int64_t x_step, MatrixRows y,
          Epilogue epilogue) {
  const std::int64_t depth = matrix.depth, panel_step = depth * kPanel;
  const float* w = matrix.weights + panel * panel_step;
  Sums<kRows, kPanels> sums;
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int p = 0; p < kPanels; ++p) {
      HWY_UNROLL(16)
      for (int v = 0; v < kVectors; ++v) sums.even[r][p][v] = sums.odd[r][p][v] = fill(0.0);
    }
  }
  std::int64_t k = 0;
  for (; k + 2 <= depth; k += 2, w += 2 * kPanel, x += 2) {
    accumulate<kRows, kPanels>(w, panel_step, x, x_step, sums.even);
    accumulate<kRows, kPanels>(w + kPanel, panel_step, x + 1, x_step, sums.odd);
  }
  if (k < depth) accumulate<kRows, kPanels>(w, panel_step, x, x_step, sums.even);
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t out = (panel + p) * kPanel + v * kLanes;
        float* to = y.data + r * y.step + out;
        F sum = (sums.even[r][p][v] + sums.odd[r][p][v]) + load(matrix.bias + out);
        if (epilogue == Epilogue::add) sum = load(to) + sum;
        store(sum, to);
      }
    }
  }
}

// Panels [begin, end) of kRows rows, kPanels at a time, then the remaining ones one by one.
template <int kRows, int kPanels>
void tile_panels(const PackedMatrix& matrix, const float* x, std::int64_t x_step, MatrixRows y,
                 Epilogue epilogue, std::int64_t begin, std::int64_t end) {
  for (; begin + kPanels <= end; begin += kPanels) {
    tile<kRows, kPanels>(matrix, begin, x, x_step, y, epilogue);
  }
  if constexpr (kPanels > 1) tile_panels<kRows, kPanels / 2>(matrix, x, x_step, y, epilogue, begin, end);
}

// The same for a number of rows known at run time, at most kRows.
template <int kRows>
void tile_rows(const PackedMatrix& matrix, const float* x, std::int64_t x_step, std::int64_t rows,
               MatrixRows y, Epilogue epilogue, std::int64_t begin, std::int64_t end) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return tile_rows<kRows - 1>(matrix, x, x_step, rows, y, epilogue, begin, end);
  }
  tile_panels<kRows, kTilePanels>(matrix, x, x_step, y, epilogue, begin, end);
}

void run_multiply(const PackedMatrix& matrix, const float* x, std::int64_t x_step, std::int64_t rows,
                  MatrixRows y, Epilogue epilogue, std::int64_t begin, std::int64_t end) {
  if (rows == 1) return tile_panels<1, kRowPanels>(matrix, x, x_step, y, epilogue, begin, end);
  // Tiles of nearly equal height: 8 rows as 4 + 4, since 6 + 2 would load a weight for only 2 of them.
  const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  // Panels outside, rows inside: the weights of a tile stay in L1 for all rows.
  for (std::int64_t panel = begin; panel < end; panel += kTilePanels) {
    const std::int64_t last = panel + kTilePanels < end ? panel + kTilePanels : end;
    for (std::int64_t i = 0; i < tiles; ++i) {
      const std::int64_t first = i * rows / tiles, height = (i + 1) * rows / tiles - first;
      tile_rows<kTileRows>(matrix, x + first * x_step, x_step, height, {y.data + first * y.step, y.step},
                           epilogue, panel, last);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {

HWY_EXPORT(run_multiply);

void multiply(const PackedMatrix& matrix, const float* x, std::int64_t x_step, std::int64_t rows,
              MatrixRows y, Epilogue epilogue, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_multiply)(matrix, x, x_step, rows, y, epilogue, begin, end);
}

std::int64_t packed_floats(std::int64_t outs, std::int64_t depth) {
  return padded(outs) * (depth + 1);
}

PackedMatrix pack_matrix(const float* from, const float* bias, std::int64_t outs, std::int64_t depth,
                         float* to) {
  float* packed_bias = to + padded(outs) * depth;
  for (std::int64_t out = 0; out < padded(outs); ++out) {
    float* column = to + out / kPanel * depth * kPanel + out % kPanel;
    for (std::int64_t k = 0; k < depth; ++k) column[k * kPanel] = out < outs ? from[out * depth + k] : 0.0f;
    packed_bias[out] = out < outs && bias != nullptr ? bias[out] : 0.0f;
    if (out % kPanel == 0) core::give_way();
  }
  return {outs, depth, to, packed_bias};
}

}  // namespace exphil::host
#endif  // HWY_ONCE
