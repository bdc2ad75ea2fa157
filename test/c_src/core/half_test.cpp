#include "core/half.hpp"

#include <cmath>
#include <limits>

#include "support/catch.hpp"
#include "support/numbers.hpp"

namespace exphil::core {

namespace {

// Rounding to nearest even by definition: the nearer neighbour, the even one on a tie.
template <class Widen>
bool is_nearest_even(float value, std::uint16_t half, Widen widen) {
  const double exact = value, got = widen(half);
  for (const int step : {-1, 1}) {
    const std::uint16_t neighbour = static_cast<std::uint16_t>(half + step);
    const double other = widen(neighbour);
    if (!std::isfinite(other) || std::signbit(other) != std::signbit(got)) continue;
    if (std::abs(other - exact) < std::abs(got - exact)) return false;
    if (std::abs(other - exact) == std::abs(got - exact) && other != got && (half & 1) != 0) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("every half value survives the round trip", "[half]") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const std::uint16_t half = static_cast<std::uint16_t>(bits);
    const float f16 = f16_to_f32(half), bf16 = bf16_to_f32(half);
    if (std::isnan(f16)) {
      wrong += !std::isnan(f16_to_f32(f32_to_f16(f16)));
    } else {
      wrong += f32_to_f16(f16) != half;
    }
    if (std::isnan(bf16)) {
      wrong += !std::isnan(bf16_to_f32(f32_to_bf16(bf16)));
    } else {
      wrong += f32_to_bf16(bf16) != half;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("rounding is to nearest even", "[half]") {
  test::Random random(7);
  int wrong = 0;
  for (int i = 0; i < 200000; ++i) {
    // Every sign and fraction; exponents around the subnormals and the top of f16.
    const std::uint32_t exponent = 127 - 30 + static_cast<std::uint32_t>(random.bits() % 46);
    std::uint32_t fraction = static_cast<std::uint32_t>(random.bits()) & 0x7fffff;
    if (i % 4 == 0) fraction &= 0x7ff000;  // ties
    const float value = f32_from_bits((random.bits() & 1 ? 0x80000000u : 0u) | (exponent << 23) | fraction);
    if (std::abs(value) < 65504.0f) wrong += !is_nearest_even(value, f32_to_f16(value), f16_to_f32);
    wrong += !is_nearest_even(value, f32_to_bf16(value), bf16_to_f32);
  }
  CHECK(wrong == 0);
  CHECK(f32_to_bf16(f32_from_bits(0x3f808000)) == 0x3f80);  // a tie: down to even
  CHECK(f32_to_bf16(f32_from_bits(0x3f818000)) == 0x3f82);  // a tie: up to even
}

TEST_CASE("the edges of f16", "[half]") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(f16_to_f32(f32_to_f16(65504.0f)) == 65504.0f);
  CHECK(f16_to_f32(f32_to_f16(65519.0f)) == 65504.0f);
  CHECK(f16_to_f32(f32_to_f16(65520.0f)) == infinity);
  CHECK(f16_to_f32(f32_to_f16(-infinity)) == -infinity);
  CHECK(f32_to_f16(0x1p-24f) == 1);
  CHECK(f32_to_f16(0x1p-25f) == 0);  // a tie with zero: even
  CHECK(f32_to_f16(0x1.8p-25f) == 1);
  CHECK(f32_to_f16(-0.0f) == 0x8000);
  CHECK(f32_to_f16(0x1p-14f) == 0x0400);
  CHECK(f32_to_f16(0x1.ffffp-15f) == 0x0400);
  CHECK(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::max())) == infinity);
}

}  // namespace exphil::core
