// The vector type of host/, its math policy for kernels/common/formulas.cuh, and loads and stores of every
// dtype. Compiled once for each SIMD target; included only by units compiled per target (see foreach_target.h
// in Highway). Pure functions: any thread.
#if defined(EXPHIL_HOST_SIMD_MATH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPHIL_HOST_SIMD_MATH_INL
#undef EXPHIL_HOST_SIMD_MATH_INL
#else
#define EXPHIL_HOST_SIMD_MATH_INL
#endif

#include <hwy/cache_control.h>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>

#include "core/half.hpp"
#include "core/tensor.hpp"
#include "host/simd/simd.hpp"

#undef EXPHIL_FORMULAS_BEGIN
#undef EXPHIL_FORMULAS_END
#define EXPHIL_FORMULAS_BEGIN \
  namespace exphil {          \
  namespace host {            \
  namespace HWY_NAMESPACE {   \
  namespace formulas {
#define EXPHIL_FORMULAS_END \
  }                         \
  }                         \
  }                         \
  }

HWY_BEFORE_NAMESPACE();
// clang-format off
#include "kernels/common/formulas.cuh"
#include "kernels/common/gradient_formulas.cuh"
#include "kernels/common/cells.cuh"
#include "kernels/common/heads.cuh"
#include "kernels/common/trapezoid.cuh"
// clang-format on

namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<float, kPanel>;
using F = hn::Vec<Lanes>;
inline constexpr std::int64_t kLanes = hn::MaxLanes(Lanes());
inline constexpr std::int64_t kVectors = kPanel / kLanes;  // registers in a panel

HWY_INLINE F fill(double value) {
  return hn::Set(Lanes(), static_cast<float>(value));
}
HWY_INLINE F broadcast(const float* from) {
  return hn::Set(Lanes(), *from);
}
HWY_INLINE F load(const float* from) {
  return hn::LoadU(Lanes(), from);
}
HWY_INLINE void store(F v, float* to) {
  hn::StoreU(v, Lanes(), to);
}

// v clamped to [lowest, highest]; keeps NaN. x86 min and max return their second operand for a NaN; other
// targets do not define the result, so they compare.
HWY_INLINE F clamp(F v, F lowest, F highest) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Min(highest, hn::Max(lowest, v));
#else
  v = hn::IfThenElse(v < lowest, lowest, v);
  return hn::IfThenElse(highest < v, highest, v);
#endif
}

// Adding this to a |v| < 2^22 leaves round(v) + 127, an f32 exponent field, in the low bits of the sum.
inline constexpr double kRoundToExponent = 12582912.0 + 127.0;  // 1.5 2^23 + bias

// 2^n from the sum above: 0 at n = -127, infinity at n = 128.
HWY_INLINE F power_of_two(F biased) {
  const hn::RebindToUnsigned<Lanes> bits;
  return hn::BitCast(Lanes(), hn::ShiftLeft<23>(hn::BitCast(bits, biased)));
}

// 2^v. At most 2 ulp (measured: 0.9) where the result is in [2^-126, 2^127]; 0 below it, infinity from
// 2^127.5 on; 2^0 is exactly 1, so dt = 0 leaves a state unchanged. The polynomial interpolates (2^f - 1) / f
// at Chebyshev nodes on [-1/2, 1/2]: relative error 4.6e-9. The two factors are multiplied, rather than added
// in the exponent, so that NaN stays NaN.
//
// exp2_unclamped is for |v| <= kExp2Range, where the clamp has no effect: it saves two of thirteen
// operations.
inline constexpr float kExp2Range = 126.0f;

HWY_INLINE F exp2_unclamped(F v) {
  const F biased = v + fill(kRoundToExponent);
  const F f = v - (biased - fill(kRoundToExponent));
  F p = fill(0.0001545316294512069);
  p = hn::MulAdd(p, f, fill(0.0013390863364671234));
  p = hn::MulAdd(p, f, fill(0.009618082557277852));
  p = hn::MulAdd(p, f, fill(0.05550357114219078));
  p = hn::MulAdd(p, f, fill(0.24022650760568126));
  p = hn::MulAdd(p, f, fill(0.6931471880262288));
  p = hn::MulAdd(p, f, fill(1.0));
  return p * power_of_two(biased);
}

HWY_INLINE F exp2(F v) {
  return exp2_unclamped(clamp(v, fill(-127.0), fill(128.0)));
}

// e^v with the same limits. ln 2 is split into two parts, the first with 9 bits, so that n ln 2 is exact.
HWY_INLINE F exponential(F v) {
  v = clamp(v, fill(-88.02969), fill(88.72284));
  const F biased = hn::MulAdd(v, fill(1.4426950408889634), fill(kRoundToExponent));
  const F n = biased - fill(kRoundToExponent);
  F f = hn::NegMulAdd(n, fill(0.693359375), v);
  f = hn::NegMulAdd(n, fill(-2.121944400546905e-4), f);
  F p = fill(0.0013933641031986701);
  p = hn::MulAdd(p, f, fill(0.008369148490856347));
  p = hn::MulAdd(p, f, fill(0.04166646500604005));
  p = hn::MulAdd(p, f, fill(0.16666505260408124));
  p = hn::MulAdd(p, f, fill(0.5000000013457727));
  p = hn::MulAdd(p, f, fill(1.00000001077157));
  p = hn::MulAdd(p, f, fill(1.0));
  return p * power_of_two(biased);
}

// log(1 + v) for v in [0, 1], at most 2 ulp: 2 atanh(s) with s = v / (2 + v), whose series in s^2 is
// interpolated at Chebyshev nodes on [0, 1/9] (relative error 4e-10). NaN stays NaN.
HWY_INLINE F log1p_unit(F v) {
  const F s = v / (v + fill(2.0));
  const F q = s * s;
  F p = fill(0.2322432922402335);
  p = hn::MulAdd(p, q, fill(0.21706575800880373));
  p = hn::MulAdd(p, q, fill(0.28592357994302836));
  p = hn::MulAdd(p, q, fill(0.3999970633192972));
  p = hn::MulAdd(p, q, fill(0.6666666732052742));
  return hn::MulAdd(s * q, p, s + s);
}

// The math policy for kernels/common/formulas.cuh. Only softplus uses log1p, of e^-|v|.
struct Math {
  static HWY_INLINE F set(F, double value) { return fill(value); }
  static HWY_INLINE F exp(F v) { return exponential(v); }
  static HWY_INLINE F log1p(F v) { return log1p_unit(v); }
  static HWY_INLINE F abs(F v) { return hn::Abs(v); }
  static HWY_INLINE F floor(F v) { return hn::Floor(v); }
  static HWY_INLINE F max(F left, F right) { return hn::IfThenElse(left < right, right, left); }
  static HWY_INLINE F min(F left, F right) { return hn::IfThenElse(right < left, right, left); }
  static HWY_INLINE F select_less(F left, F right, F if_less, F otherwise) {
    return hn::IfThenElse(left < right, if_less, otherwise);
  }
  static HWY_INLINE F multiply(F p, F q) { return p * q; }
  static HWY_INLINE F multiply_add(F p, F q, F r) { return hn::MulAdd(p, q, r); }
  static HWY_INLINE F negate(F v) { return hn::Neg(v); }
  static HWY_INLINE void sin_cos(F v, F* sin, F* cos) {
    *sin = hn::Sin(Lanes(), v);
    *cos = hn::Cos(Lanes(), v);
    // The vector reduction is accurate up to |v| = 39000; larger values, infinities and NaN go lane by lane.
    const auto large = hn::Not(hn::Abs(v) <= fill(30000.0));
    if (HWY_UNLIKELY(!hn::AllFalse(Lanes(), large))) {
      HWY_ALIGN float angles[kPanel], sines[kPanel], cosines[kPanel];
      store(v, angles);
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        sines[lane] = std::sin(angles[lane]);
        cosines[lane] = std::cos(angles[lane]);
      }
      *sin = hn::IfThenElse(large, load(sines), *sin);
      *cos = hn::IfThenElse(large, load(cosines), *cos);
    }
  }
};

// The math policy for the scaled forms there. kClamp: some |v| may exceed kExp2Range.
template <bool kClamp>
struct ScaledMath : Math {
  static HWY_INLINE F exp2(F v) { return kClamp ? HWY_NAMESPACE::exp2(v) : exp2_unclamped(v); }
};

template <core::Dtype T>
struct ElementOf {
  using Type = std::uint16_t;
};
template <>
struct ElementOf<core::Dtype::f32> {
  using Type = float;
};
template <core::Dtype T>
using Element = typename ElementOf<T>::Type;

// Converts kLanes elements of dtype T to f32 and back, rounding to nearest even. The baseline converts lane
// by lane, because Highway's emulation truncates.
template <core::Dtype T>
HWY_INLINE F load_as_f32(const Element<T>* from) {
  if constexpr (T == core::Dtype::f32) {
    return load(from);
  } else {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    HWY_ALIGN float lanes[kPanel];
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = T == core::Dtype::f16 ? core::f16_to_f32(from[lane]) : core::bf16_to_f32(from[lane]);
    }
    return load(lanes);
#else
    const hn::Rebind<std::uint16_t, Lanes> narrow;
    const auto bits = hn::LoadU(narrow, from);
    if constexpr (T == core::Dtype::f16) {
      return hn::PromoteTo(Lanes(), hn::BitCast(hn::Rebind<hwy::float16_t, Lanes>(), bits));
    } else {
      return hn::BitCast(Lanes(), hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<Lanes>(), bits)));
    }
#endif
  }
}

template <core::Dtype T>
HWY_INLINE void store_from_f32(F v, Element<T>* to) {
  if constexpr (T == core::Dtype::f32) {
    store(v, to);
  } else {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    HWY_ALIGN float lanes[kPanel];
    store(v, lanes);
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      to[lane] = T == core::Dtype::f16 ? core::f32_to_f16(lanes[lane]) : core::f32_to_bf16(lanes[lane]);
    }
#else
    const hn::Rebind<std::uint16_t, Lanes> narrow;
    if constexpr (T == core::Dtype::f16) {
      const hn::Rebind<hwy::float16_t, Lanes> half;
      hn::StoreU(hn::BitCast(narrow, hn::DemoteTo(half, v)), narrow, to);
    } else {
      const hn::RebindToUnsigned<Lanes> wide;
      const auto bits = hn::BitCast(wide, v);
      const auto kept = hn::ShiftRight<16>(bits);
      const auto rounded = hn::ShiftRight<16>(bits + hn::Set(wide, 0x7fffu) + (kept & hn::Set(wide, 1u)));
      const auto quiet = kept | hn::Set(wide, 0x40u);  // a NaN whose low bits are lost must not become inf
      const auto chosen = hn::IfThenElse(hn::RebindMask(wide, hn::IsNaN(v)), quiet, rounded);
      hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(hn::RebindToSigned<Lanes>(), chosen)), narrow, to);
    }
#endif
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
