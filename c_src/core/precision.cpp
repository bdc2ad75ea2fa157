#include "core/precision.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

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

// Loops over so many values are computed in vector registers at -O2; longer ones are not.
constexpr int kTogether = 4;

// Calls some(first, one or kTogether as a constant) over [0, count).
template <class Some>
void in_blocks(std::int64_t count, const Some& some) {
  std::int64_t i = 0;
  for (; i + kTogether <= count; i += kTogether) some(i, std::integral_constant<int, kTogether>());
  for (; i < count; ++i) some(i, std::integral_constant<int, 1>());
}

// q in the low byte of each. Within 2^51 of 1.5 * 2^52 the unit of a double is 1, so that the addition
// rounds, to nearest even.
template <int kCount>
void int8_bits(const float* values, float scale, std::uint8_t* to) {
  double q[kCount];
  for (int i = 0; i < kCount; ++i) q[i] = static_cast<double>(values[i]) / static_cast<double>(scale);
  for (int i = 0; i < kCount; ++i) q[i] = q[i] < -127.0 ? -127.0 : q[i];
  for (int i = 0; i < kCount; ++i) q[i] = q[i] > 127.0 ? 127.0 : q[i];
  for (int i = 0; i < kCount; ++i) q[i] += 0x1.8p52;
  std::uint64_t bits[kCount];
  std::memcpy(bits, q, sizeof bits);
  for (int i = 0; i < kCount; ++i) to[i] = static_cast<std::uint8_t>(bits[i]);
}

void store_int8(const float* values, std::int64_t count, float scale, std::uint8_t* to) {
  if (scale == 0.0f) {
    std::fill_n(to, count, std::uint8_t{0});
    return;
  }
  in_blocks(count, [&](std::int64_t i, auto some) { int8_bits<some()>(values + i, scale, to + i); });
}

template <class Store>
void store_halves(const float* values, std::int64_t count, void* to, const Store& store) {
  in_blocks(count, [&](std::int64_t first, auto some) {
    std::uint32_t bits[some()];
    std::uint16_t halves[some()];
    for (int i = 0; i < some(); ++i) bits[i] = store(values[first + i]);
    for (int i = 0; i < some(); ++i) halves[i] = static_cast<std::uint16_t>(bits[i]);
    std::memcpy(static_cast<char*>(to) + first * 2, halves, sizeof halves);
  });
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
  float some_largest[kTogether] = {};
  in_blocks(columns, [&](std::int64_t k, auto some) {
    for (int i = 0; i < some(); ++i) {
      const float size = std::abs(row[k + i]);
      some_largest[i] = some_largest[i] < size ? size : some_largest[i];
    }
  });
  const float largest = *std::max_element(some_largest, some_largest + kTogether);
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
  std::uint8_t bits;
  store_int8(&value, 1, scale, &bits);
  return bits;
}

void store_weights(Precision precision, const float* values, std::int64_t count, float scale, void* to) {
  switch (precision) {
    case Precision::f32:
    case Precision::tf32x3:
      std::memcpy(to, values, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case Precision::bf16:
      return store_halves(values, count, to, [](float value) { return f32_to_bf16(value); });
    case Precision::f16:
      return store_halves(values, count, to, [](float value) { return f32_to_f16(value); });
    case Precision::int8:
      return store_int8(values, count, scale, static_cast<std::uint8_t*>(to));
  }
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
