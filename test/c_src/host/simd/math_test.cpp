// The vector functions of every SIMD target against double, in units of the last place.
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/half.hpp"
#include "core/tensor.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/simd/math_test.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/simd/math-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

enum class Function { exp, exp2, log1p, sin, cos };

// count is a multiple of kPanel.
void evaluate(Function function, const float* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const F v = load(from + i);
    F sin, cos;
    switch (function) {
      case Function::exp:
        store(Math::exp(v), to + i);
        break;
      case Function::exp2:
        store(exp2(v), to + i);
        break;
      case Function::log1p:
        store(Math::log1p(v), to + i);
        break;
      default:
        Math::sin_cos(v, &sin, &cos);
        store(function == Function::sin ? sin : cos, to + i);
    }
  }
}

void run_function(int function, const float* from, std::int64_t count, float* to) {
  evaluate(static_cast<Function>(function), from, count, to);
}

void run_halves(const float* from, std::int64_t count, std::uint16_t* f16, std::uint16_t* bf16,
                float* from_f16, float* from_bf16) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    store_from_f32<core::Dtype::f16>(load(from + i), f16 + i);
    store_from_f32<core::Dtype::bf16>(load(from + i), bf16 + i);
    store(load_as_f32<core::Dtype::f16>(f16 + i), from_f16 + i);
    store(load_as_f32<core::Dtype::bf16>(bf16 + i), from_bf16 + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <string>

#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"

namespace exphil::host {

HWY_EXPORT(run_function);
HWY_EXPORT(run_halves);

namespace {

constexpr int kExp = 0, kExp2 = 1, kLog1p = 2, kSin = 3, kCos = 4;

std::vector<float> call(int function, const std::vector<float>& from) {
  std::vector<float> padded_from = from, to(static_cast<std::size_t>(padded(from.size())));
  padded_from.resize(to.size());
  HWY_DYNAMIC_DISPATCH(run_function)(function, padded_from.data(), padded_from.size(), to.data());
  to.resize(from.size());
  return to;
}

double ulps(float got, double exact) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::abs(static_cast<double>(got) - exact) / unit;
}

std::vector<float> spread(float low, float high) {
  return test::Random(11).vector(200000, low, high);
}

template <class Exact>
double worst_ulps(int function, const std::vector<float>& at, const Exact& exact) {
  const std::vector<float> got = call(function, at);
  double worst = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    worst = std::max(worst, ulps(got[i], exact(static_cast<double>(at[i]))));
  }
  return worst;
}

}  // namespace

TEST_CASE("three SIMD targets are compiled, and the machine's best is chosen", "[host][simd]") {
  const std::vector<std::int64_t> targets = test::compiled_targets();
  CHECK(targets.size() <= 3);
  const std::string best = simd_target();
  CHECK(best == hwy::TargetName(targets.front()));
  for (const std::int64_t target : targets) {
    const test::OnlyTarget only(target);
    CHECK(std::string(simd_target()) == hwy::TargetName(target));
  }
  CHECK(std::string(simd_target()) == best);
}

TEST_CASE("exponentials are within 2 ulp and saturate as documented", "[host][simd]") {
  test::for_each_target([] {
    INFO(simd_target());
    const auto exact_exp = [](double v) { return std::exp(v); };
    const auto exact_exp2 = [](double v) { return std::exp2(v); };
    CHECK(worst_ulps(kExp, spread(-87.3f, 88.3f), exact_exp) < 2.0);
    CHECK(worst_ulps(kExp, spread(-1.0f, 1.0f), exact_exp) < 1.5);
    CHECK(worst_ulps(kExp2, spread(-126.0f, 127.0f), exact_exp2) < 2.0);
    CHECK(worst_ulps(kExp2, spread(-1.0f, 1.0f), exact_exp2) < 1.5);
    const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
    const std::vector<float> edges = {0.0f, -0.0f, -infinity, infinity, nan, -300.0f, 300.0f, -1e30f, 1e30f};
    for (const int function : {kExp, kExp2}) {
      const std::vector<float> got = call(function, edges);
      CHECK(got[0] == 1.0f);
      CHECK(got[1] == 1.0f);
      CHECK(got[2] == 0.0f);
      CHECK(got[3] == infinity);
      CHECK(std::isnan(got[4]));
      CHECK(got[5] == 0.0f);
      CHECK(got[6] == infinity);
      CHECK(got[7] == 0.0f);
      CHECK(got[8] == infinity);
    }
  });
}

TEST_CASE("log1p, sine and cosine", "[host][simd]") {
  test::for_each_target([] {
    INFO(simd_target());
    CHECK(worst_ulps(kLog1p, spread(0.0f, 1.0f), [](double v) { return std::log1p(v); }) < 3.0);
    // Absolute, in units of 2^-24: near a zero of the function the relative error is meaningless for h.
    for (const float range : {3.0f, 1000.0f, 100000.0f}) {
      const std::vector<float> at = spread(-range, range), sin = call(kSin, at), cos = call(kCos, at);
      double worst = 0;
      for (std::size_t i = 0; i < at.size(); ++i) {
        worst = std::max(worst, std::abs(sin[i] - std::sin(static_cast<double>(at[i]))));
        worst = std::max(worst, std::abs(cos[i] - std::cos(static_cast<double>(at[i]))));
      }
      CHECK(worst < 4 * 0x1p-24);
    }
    const std::vector<float> edges = {std::nanf(""), std::numeric_limits<float>::infinity()};
    CHECK(std::isnan(call(kSin, edges)[0]));
    CHECK(std::isnan(call(kCos, edges)[1]));
  });
}

TEST_CASE("halves round to nearest even, as the portable conversions do", "[host][simd]") {
  std::vector<float> from = spread(-70000.0f, 70000.0f);
  for (const float small : spread(-1e-4f, 1e-4f)) from.push_back(small);
  for (std::uint32_t bits = 0; bits < 0xffff; ++bits) {
    const std::uint32_t odd = bits * 65537u;  // every exponent, ties and near ties
    if (!std::isnan(core::f32_from_bits(odd))) from.push_back(core::f32_from_bits(odd));
    if (!std::isnan(core::f32_from_bits(bits << 16)))
      from.push_back(core::f32_from_bits((bits << 16) | 0x8000u));
  }
  from.resize(from.size() / kPanel * kPanel);
  const std::size_t n = from.size();
  test::for_each_target([&] {
    INFO(simd_target());
    std::vector<std::uint16_t> f16(n), bf16(n);
    std::vector<float> from_f16(n), from_bf16(n);
    HWY_DYNAMIC_DISPATCH(run_halves)
    (from.data(), static_cast<std::int64_t>(n), f16.data(), bf16.data(), from_f16.data(), from_bf16.data());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (std::isnan(from[i])) continue;
      wrong += f16[i] != core::f32_to_f16(from[i]) || bf16[i] != core::f32_to_bf16(from[i]) ||
               from_f16[i] != core::f16_to_f32(f16[i]) || from_bf16[i] != core::bf16_to_f32(bf16[i]);
    }
    CHECK(wrong == 0);
  });
}

}  // namespace exphil::host
#endif  // HWY_ONCE
