#include "core/precision.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/half.hpp"

namespace exphil::core {

namespace {

constexpr Precision kPrecisions[] = {Precision::f32, Precision::bf16, Precision::f16, Precision::int8,
                                     Precision::tf32x3};
constexpr float kSmallest = 0x1p-100f;
constexpr float kMostInt8 = 127.0f;

// To 17 significant bits: q has 7, and f32 24.
float rounded_scale(float scale) {
  constexpr std::uint32_t kDropped = 7;
  const std::uint32_t bits = f32_bits(scale), odd = (bits >> kDropped) & 1u;
  return f32_from_bits((bits + (1u << (kDropped - 1)) - 1 + odd) >> kDropped << kDropped);
}

float rounded(Precision precision, float value, float scale) {
  return stored_value(precision, stored_bits(precision, value, scale), scale);
}

[[noreturn]] void refuse(Precision precision, const std::string& name, float value) {
  fail(ErrorKind::limit_exceeded, ":precision", name, " has the weight ", value,
       ", which :", precision_name(precision),
       precision == Precision::f16 ? " cannot hold: its largest value is 65504"
                                   : " cannot hold: it needs finite weights");
}

}  // namespace

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::f32:
      return "f32";
    case Precision::bf16:
      return "bf16";
    case Precision::f16:
      return "f16";
    case Precision::int8:
      return "int8";
    case Precision::tf32x3:
      return "tf32x3";
  }
  return "";
}

bool parse_precision(const std::string& name, Precision* precision) {
  for (const Precision candidate : kPrecisions) {
    if (name != precision_name(candidate)) continue;
    *precision = candidate;
    return true;
  }
  return false;
}

int stored_bytes(Precision precision) {
  return stores_f32(precision) ? 4 : precision == Precision::int8 ? 1 : 2;
}

bool stores_f32(Precision precision) {
  return precision == Precision::f32 || precision == Precision::tf32x3;
}

float row_scale(Precision precision, const float* row, std::int64_t columns) {
  if (precision != Precision::int8) return 1.0f;
  float largest = 0.0f;
  for (std::int64_t k = 0; k < columns; ++k) largest = std::max(largest, std::abs(row[k]));
  return largest < kSmallest ? 0.0f : rounded_scale(largest / kMostInt8);
}

std::uint32_t stored_bits(Precision precision, float value, float scale) {
  switch (precision) {
    case Precision::f32:
    case Precision::tf32x3:
      return f32_bits(value);
    case Precision::bf16:
      return f32_to_bf16(value);
    case Precision::f16:
      return f32_to_f16(value);
    case Precision::int8:
      break;
  }
  if (scale == 0.0f) return 0;
  const double q = std::nearbyint(static_cast<double>(value) / static_cast<double>(scale));
  const auto limited = static_cast<std::int32_t>(std::clamp(q, -127.0, 127.0));
  return static_cast<std::uint8_t>(limited);
}

std::uint32_t stored_state(Precision states, float value) {
  constexpr float kLargest = 65504.0f;
  const bool beyond = states == Precision::f16 && std::abs(value) > kLargest;
  return stored_bits(states, beyond ? std::copysign(kLargest, value) : value, 1.0f);
}

float stored_value(Precision precision, std::uint32_t bits, float scale) {
  switch (precision) {
    case Precision::f32:
    case Precision::tf32x3:
      return f32_from_bits(bits);
    case Precision::bf16:
      return bf16_to_f32(static_cast<std::uint16_t>(bits));
    case Precision::f16:
      return f16_to_f32(static_cast<std::uint16_t>(bits));
    case Precision::int8:
      break;
  }
  return static_cast<float>(static_cast<std::int8_t>(bits)) * scale;
}

void round_rows(Precision precision, std::int64_t columns, const std::string& name,
                std::vector<float>* matrix) {
  if (stores_f32(precision)) return;
  for (auto row = matrix->begin(); row != matrix->end(); row += columns) {
    if (precision == Precision::int8) {
      const auto bad = std::find_if(row, row + columns, [](float v) { return !std::isfinite(v); });
      if (bad != row + columns) refuse(precision, name, *bad);
    }
    const float scale = row_scale(precision, &*row, columns);
    for (std::int64_t k = 0; k < columns; ++k) {
      const float value = rounded(precision, row[k], scale);
      if (std::isfinite(row[k]) && !std::isfinite(value)) refuse(precision, name, row[k]);
      row[k] = value;
    }
  }
}

}  // namespace exphil::core
