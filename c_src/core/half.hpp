// f16 and bf16 bits to and from f32, rounding to nearest even; NaN stays NaN. Portable scalar code for the
// reference, the checkpoint reader, the tests and the tails of SIMD loops. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <cstring>

namespace exphil::core {

inline std::uint32_t f32_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float f32_from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float bf16_to_f32(std::uint16_t half) {
  return f32_from_bits(std::uint32_t{half} << 16);
}

inline std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = f32_bits(value), nan = (bits >> 16) | 0x0040u;
  const std::uint32_t odd = (bits >> 16) & 1u, nearest = (bits + 0x7fffu + odd) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : nearest);
}

inline float f16_to_f32(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1f) return f32_from_bits(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return f32_from_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // zero or subnormal: exact in f32
  return sign != 0 ? -magnitude : magnitude;
}

inline std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = f32_bits(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((size >> 13) & 0x1ffu));
  if (size >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and up round to inf
  if (size < 0x38800000u) {  // below 2^-14: adding 0.5 puts the subnormal's unit 2^-24 in the last bit
    const std::uint32_t rounded = f32_bits(f32_from_bits(size) + 0.5f);
    return static_cast<std::uint16_t>(sign | (rounded - 0x3f000000u));
  }
  const std::uint32_t odd = (size >> 13) & 1u;
  return static_cast<std::uint16_t>(sign | ((size - 0x38000000u + 0xfffu + odd) >> 13));
}

}  // namespace exphil::core
