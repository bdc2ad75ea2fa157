#include "host/simd/matmul.hpp"
#include "core/work/background.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/simd/matmul.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/simd/math-inl.hpp"
// clang-format on

#ifndef EXPHIL_HOST_MATMUL_ONCE
#define EXPHIL_HOST_MATMUL_ONCE
namespace exphil::host {

using core::Precision;

// Of one panel.
inline std::int64_t panel_bytes(std::int64_t depth, Precision precision) {
  const std::int64_t stored = precision == Precision::bf16 ? (depth + 1) / 2 * 2 : depth;
  return stored * kPanel * core::stored_bytes(precision);
}

}  // namespace exphil::host
#endif

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

// Bytes of two neighbouring k of a panel; of one k where there is no second one.
template <Precision kStored>
inline constexpr std::int64_t kPairBytes = kStored == Precision::f32    ? 8 * kPanel
                                           : kStored == Precision::int8 ? 2 * kPanel
                                                                        : 4 * kPanel;

// Weights v kLanes ... of the first (kOdd: the second) of two k.
template <Precision kStored, bool kOdd>
HWY_INLINE F weights_at(const std::uint8_t* pair, std::int64_t v) {
  const std::int64_t at = v * kLanes, in_pair = (kOdd ? kPanel : 0) + at;
  if constexpr (kStored == Precision::f32) {
    return load(reinterpret_cast<const float*>(pair) + in_pair);
  } else if constexpr (kStored == Precision::bf16) {
    const hn::RebindToUnsigned<Lanes> d;
    const auto both = hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(pair) + at);
    if constexpr (kOdd) return hn::BitCast(Lanes(), hn::And(both, hn::Set(d, 0xffff0000u)));
    return hn::BitCast(Lanes(), hn::ShiftLeft<16>(both));
  } else if constexpr (kStored == Precision::f16) {
    return load_as_f32<core::Dtype::f16>(reinterpret_cast<const std::uint16_t*>(pair) + in_pair);
  } else {
    const hn::Rebind<std::int8_t, Lanes> d;
    const auto bytes = hn::LoadU(d, reinterpret_cast<const std::int8_t*>(pair) + in_pair);
    return hn::ConvertTo(Lanes(), hn::PromoteTo(hn::RebindToSigned<Lanes>(), bytes));
  }
}

template <Precision kStored, bool kOdd, int kRows, int kPanels>
HWY_INLINE void accumulate(const std::uint8_t* pair, std::int64_t panel_step, const float* x,
                           std::int64_t x_step, F (&sums)[kRows][kPanels][kVectors]) {
  HWY_UNROLL(8)
  for (int p = 0; p < kPanels; ++p) {
    HWY_UNROLL(16)
    for (int v = 0; v < kVectors; ++v) {
      const F weight = weights_at<kStored, kOdd>(pair + p * panel_step, v);
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        sums[r][p][v] = hn::MulAdd(broadcast(x + r * x_step), weight, sums[r][p][v]);
      }
    }
  }
}

template <Precision kStored, int kRows, int kPanels>
void tile(const PackedMatrix& matrix, std::int64_t panel, const float* x, std::int64_t x_step, MatrixRows y,
          Epilogue epilogue) {
  const std::int64_t depth = matrix.depth, panel_step = panel_bytes(depth, kStored);
  const std::uint8_t* w = static_cast<const std::uint8_t*>(matrix.weights) + panel * panel_step;
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
  for (; k + 2 <= depth; k += 2, w += kPairBytes<kStored>, x += 2) {
    accumulate<kStored, false>(w, panel_step, x, x_step, sums.even);
    accumulate<kStored, true>(w, panel_step, x + 1, x_step, sums.odd);
  }
  if (k < depth) accumulate<kStored, false>(w, panel_step, x, x_step, sums.even);
  HWY_UNROLL(8)  // else the sums go through memory
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int p = 0; p < kPanels; ++p) {
      HWY_UNROLL(16)
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t out = (panel + p) * kPanel + v * kLanes;
        float* to = y.data + r * y.step + out;
        const F both = sums.even[r][p][v] + sums.odd[r][p][v], bias = load(matrix.bias + out);
        F sum = kStored == Precision::int8 ? hn::MulAdd(both, load(matrix.scales + out), bias) : both + bias;
        if (epilogue == Epilogue::add) sum = load(to) + sum;
        store(sum, to);
      }
    }
  }
}

// Panels [begin, end) of kRows rows, kPanels at a time, then the remaining ones one by one.
template <Precision kStored, int kRows, int kPanels>
void tile_panels(const PackedMatrix& matrix, const float* x, std::int64_t x_step, MatrixRows y,
                 Epilogue epilogue, std::int64_t begin, std::int64_t end) {
  for (; begin + kPanels <= end; begin += kPanels) {
    tile<kStored, kRows, kPanels>(matrix, begin, x, x_step, y, epilogue);
  }
  if constexpr (kPanels > 1)
    tile_panels<kStored, kRows, kPanels / 2>(matrix, x, x_step, y, epilogue, begin, end);
}

// The same for a number of rows known at run time, at most kRows.
template <Precision kStored, int kRows>
void tile_rows(const PackedMatrix& matrix, const float* x, std::int64_t x_step, std::int64_t rows,
               MatrixRows y, Epilogue epilogue, std::int64_t begin, std::int64_t end) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return tile_rows<kStored, kRows - 1>(matrix, x, x_step, rows, y, epilogue, begin, end);
  }
  tile_panels<kStored, kRows, kTilePanels>(matrix, x, x_step, y, epilogue, begin, end);
}

template <Precision kStored>
void multiply_stored(const PackedMatrix& matrix, const float* x, std::int64_t x_step, std::int64_t rows,
                     MatrixRows y, Epilogue epilogue, std::int64_t begin, std::int64_t end) {
  if (rows == 1) return tile_panels<kStored, 1, kRowPanels>(matrix, x, x_step, y, epilogue, begin, end);
  // Tiles of nearly equal height: 8 rows as 4 + 4, since 6 + 2 would load a weight for only 2 of them.
  const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  // Panels outside, rows inside: the weights of a tile stay in L1 for all rows.
  for (std::int64_t panel = begin; panel < end; panel += kTilePanels) {
    const std::int64_t last = panel + kTilePanels < end ? panel + kTilePanels : end;
    for (std::int64_t i = 0; i < tiles; ++i) {
      const std::int64_t first = i * rows / tiles, height = (i + 1) * rows / tiles - first;
      tile_rows<kStored, kTileRows>(matrix, x + first * x_step, x_step, height,
                                    {y.data + first * y.step, y.step}, epilogue, panel, last);
    }
  }
}

void run_multiply(const PackedMatrix& matrix, const float* x, std::int64_t x_step, std::int64_t rows,
                  MatrixRows y, Epilogue epilogue, std::int64_t begin, std::int64_t end) {
  const auto run = [&](auto multiply) { multiply(matrix, x, x_step, rows, y, epilogue, begin, end); };
  switch (matrix.precision) {
    case Precision::f32:
    case Precision::tf32x3:
      return run(multiply_stored<Precision::f32>);
    case Precision::bf16:
      return run(multiply_stored<Precision::bf16>);
    case Precision::f16:
      return run(multiply_stored<Precision::f16>);
    case Precision::int8:
      return run(multiply_stored<Precision::int8>);
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

namespace {

// Floats that hold the weights.
std::int64_t weight_floats(std::int64_t outs, std::int64_t depth, Precision precision) {
  return padded((panels(outs) * panel_bytes(depth, precision) + 3) / 4);
}

void put(Precision precision, std::uint32_t bits, std::uint8_t* panel, std::int64_t k, std::int64_t lane) {
  const std::int64_t place = k * kPanel + lane;
  if (precision == Precision::bf16) {
    reinterpret_cast<std::uint32_t*>(panel)[k / 2 * kPanel + lane] |= k % 2 == 0 ? bits : bits << 16;
  } else if (precision == Precision::f16) {
    reinterpret_cast<std::uint16_t*>(panel)[place] = static_cast<std::uint16_t>(bits);
  } else {
    panel[place] = static_cast<std::uint8_t>(bits);
  }
}

}  // namespace

std::int64_t packed_floats(std::int64_t outs, std::int64_t depth, Precision precision) {
  const std::int64_t vectors = precision == Precision::int8 ? 2 : 1;  // bias, scales
  return weight_floats(outs, depth, precision) + vectors * padded(outs);
}

PackedMatrix pack_matrix(const float* from, const float* bias, std::int64_t outs, std::int64_t depth,
                         float* to, Precision precision) {
  auto* const bytes = reinterpret_cast<std::uint8_t*>(to);
  float* const packed_bias = to + weight_floats(outs, depth, precision);
  float* const scales = precision == Precision::int8 ? packed_bias + padded(outs) : nullptr;
  for (std::int64_t out = 0; out < padded(outs); ++out) {
    const std::int64_t lane = out % kPanel;
    const float* const row = out < outs ? from + out * depth : nullptr;
    if (core::stores_f32(precision)) {
      float* column = to + out / kPanel * depth * kPanel + lane;
      for (std::int64_t k = 0; k < depth; ++k) column[k * kPanel] = row != nullptr ? row[k] : 0.0f;
    } else if (row != nullptr) {
      const float scale = core::row_scale(precision, row, depth);
      std::uint8_t* const panel = bytes + out / kPanel * panel_bytes(depth, precision);
      for (std::int64_t k = 0; k < depth; ++k) {
        put(precision, core::stored_bits(precision, row[k], scale), panel, k, lane);
      }
      if (scales != nullptr) scales[out] = scale;
    }
    packed_bias[out] = row != nullptr && bias != nullptr ? bias[out] : 0.0f;
    if (lane == 0) core::give_way();
  }
  return {outs, depth, to, packed_bias, precision, scales};
}

}  // namespace exphil::host
#endif  // HWY_ONCE
