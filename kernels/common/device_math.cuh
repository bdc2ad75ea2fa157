// CUDA math for the formulas of common/formulas.cuh and half conversions, in inline PTX, so that NVRTC needs
// no toolkit header at run time. Included by kernels only.
//
// Every operation is rounded explicitly (__fmul_rn, __fmaf_rn, ...). Otherwise the compiler fuses a product
// and a sum in one variant of a kernel and not in another, and the same inputs would not give the same bits.
#pragma once

#include "kernels/common/formulas.cuh"

#ifndef EXPHIL_DEVICE
#define EXPHIL_DEVICE __device__ __forceinline__
#endif

namespace exphil {
namespace device {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// Operations that CUDA C++ does not name. With EXPHIL_EMULATED_GRID the C++ tests supply them on the CPU.
#ifndef EXPHIL_EMULATED_GRID
// 2^v and 1/v from the special function unit: one instruction each, at most 2 and 1 units in the last place.
EXPHIL_DEVICE float exp2_fast(float v) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
  return result;
}
EXPHIL_DEVICE float reciprocal(float v) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
  return result;
}
EXPHIL_DEVICE float half_to_float(unsigned short half) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(half));
  return result;
}
EXPHIL_DEVICE unsigned short float_to_half(float value) {
  unsigned short result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(value));
  return result;
}
// One of the block's barriers 1 to 15, for `threads` of its threads (whole warps).
EXPHIL_DEVICE void barrier(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
// The same of a thread that does not wait.
EXPHIL_DEVICE void barrier_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
#endif

// max(v, 0), and NaN of NaN, of which fmaxf makes 0.
EXPHIL_DEVICE float rectified(float v) {
  return v <= 0.0f ? 0.0f : v;
}

// A float whose operators round explicitly, and whose quotient is exact to 2 units in the last place.
struct Real {
  float v;
};
EXPHIL_DEVICE Real operator+(Real p, Real q) {
  return {__fadd_rn(p.v, q.v)};
}
EXPHIL_DEVICE Real operator-(Real p, Real q) {
  return {__fsub_rn(p.v, q.v)};
}
EXPHIL_DEVICE Real operator*(Real p, Real q) {
  return {__fmul_rn(p.v, q.v)};
}
EXPHIL_DEVICE Real operator/(Real p, Real q) {
  return {__fdividef(p.v, q.v)};
}

// ((sum v + next) v + ...) by Horner's rule, each step fused.
EXPHIL_DEVICE float horner(float, float sum) {
  return sum;
}
template <class... Rest>
EXPHIL_DEVICE float horner(float v, float sum, float next, Rest... rest) {
  return horner(v, __fmaf_rn(sum, v, next), rest...);
}

// 2^v for |v| < 0.5: a Taylor series whose first omitted term is below 6e-9.
EXPHIL_DEVICE float exp2_series(float v) {
  const float u = __fmul_rn(v, kLn2);
  const float series =
      horner(u, 1.0f / 5040.0f, 1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f);
  return __fmaf_rn(series, u, 1.0f);
}
// 2^v, near 1 rounded to nearest. The error of ex2.approx near 1 has the same sign for every v, so a state
// that decays by 1e-5 at a step would be wrong by 1e-3 after some 10,000 steps.
EXPHIL_DEVICE float exp2_unbiased(float v) {
  return fabsf(v) < 0.5f ? exp2_series(v) : exp2_fast(v);
}
// The same bits without a branch, so that several overlap.
EXPHIL_DEVICE float exp2_unbiased_select(float v) {
  float near = exp2_series(v), far = exp2_fast(v);
#if __CUDA_ARCH__ >= 750
  asm volatile("" : "+f"(near), "+f"(far));  // both are computed now
#endif
  return fabsf(v) < 0.5f ? near : far;
}

// log(1 + e) for e in [0, 1] as 2 artanh(e / (2 + e)): no cancellation for small e, no branch. The quotient
// is at most 1/3, so the first omitted term is below 2e-8 of the sum.
EXPHIL_DEVICE float log1p_unit(float e) {
  const float s = __fdividef(e, __fadd_rn(2.0f, e));
  const float square = __fmul_rn(s, s);
  const float series = __fmul_rn(
      horner(square, 2.0f / 13.0f, 2.0f / 11.0f, 2.0f / 9.0f, 2.0f / 7.0f, 2.0f / 5.0f, 2.0f / 3.0f), square);
  return __fmaf_rn(series, s, __fadd_rn(s, s));
}

// sin and cos of hi + lo, |lo| much smaller than |hi|: three-part reduction by pi/2 (exact products up to
// |hi| about 1e5), then polynomials on [-pi/4, pi/4]. Errors near 1e-7. The sine of the special function unit
// would add an error of 4e-7 at every step, which accumulates in a slowly decaying oscillation.
EXPHIL_DEVICE void sin_cos_sum(float hi, float lo, float* sine, float* cosine) {
  const float quadrant = rintf(__fmul_rn(hi, 0.6366197723675814f));
  float r = __fmaf_rn(quadrant, -1.5707962513f, hi);
  r = __fmaf_rn(quadrant, -7.5497894159e-8f, r);
  r = __fmaf_rn(quadrant, -5.3903029534742e-15f, r);
  r = __fadd_rn(r, lo);
  const float square = __fmul_rn(r, r);
  float s = -1.9515295891e-4f;
  s = __fmaf_rn(s, square, 8.3321608736e-3f);
  s = __fmaf_rn(s, square, -1.6666654611e-1f);
  s = __fmaf_rn(__fmul_rn(s, square), r, r);
  float c = 2.443315711809948e-5f;
  c = __fmaf_rn(c, square, -1.388731625493765e-3f);
  c = __fmaf_rn(c, square, 4.166664568298827e-2f);
  c = __fmaf_rn(__fmul_rn(c, square), square, __fmaf_rn(-0.5f, square, 1.0f));
  const int q = static_cast<int>(quadrant);
  const float swapped_sine = q & 1 ? c : s, swapped_cosine = q & 1 ? s : c;
  *sine = q & 2 ? -swapped_sine : swapped_sine;
  *cosine = (q + 1) & 2 ? -swapped_cosine : swapped_cosine;
}

// The policy M of common/formulas.cuh.
struct Math {
  static EXPHIL_DEVICE Real set(Real, double value) { return {static_cast<float>(value)}; }
  static EXPHIL_DEVICE Real exp(Real v) { return {exp2_fast(__fmul_rn(v.v, kLog2E))}; }
  static EXPHIL_DEVICE Real log1p(Real v) { return {log1p_unit(v.v)}; }  // softplus passes only [0, 1]
  static EXPHIL_DEVICE Real abs(Real v) { return {fabsf(v.v)}; }
  static EXPHIL_DEVICE Real max(Real p, Real q) { return {fmaxf(p.v, q.v)}; }
  static EXPHIL_DEVICE Real min(Real p, Real q) { return {fminf(p.v, q.v)}; }
  static EXPHIL_DEVICE Real floor(Real v) { return {floorf(v.v)}; }
  static EXPHIL_DEVICE void sin_cos(Real v, Real* sine, Real* cosine) {
    sin_cos_sum(v.v, 0.0f, &sine->v, &cosine->v);
  }
  static EXPHIL_DEVICE Real select_less(Real left, Real right, Real if_less, Real otherwise) {
    return {left.v < right.v ? if_less.v : otherwise.v};
  }
};

// The policy M of the scaled forms there, on floats.
struct ScaledMath {
  static EXPHIL_DEVICE float set(float, double value) { return static_cast<float>(value); }
  static EXPHIL_DEVICE float multiply(float p, float q) { return __fmul_rn(p, q); }
  static EXPHIL_DEVICE float add(float p, float q) { return __fadd_rn(p, q); }
  static EXPHIL_DEVICE float multiply_add(float p, float q, float r) { return __fmaf_rn(p, q, r); }
  static EXPHIL_DEVICE float negate(float v) { return -v; }
  static EXPHIL_DEVICE float abs(float v) { return fabsf(v); }
  static EXPHIL_DEVICE float exp2(float v) { return exp2_fast(v); }
  static EXPHIL_DEVICE float reciprocal(float v) { return device::reciprocal(v); }
  static EXPHIL_DEVICE float select_less(float left, float right, float if_less, float otherwise) {
    return left < right ? if_less : otherwise;
  }
};

EXPHIL_DEVICE float silu(float z) {
  return formulas::silu<Math>(Real{z}).v;
}

// Element types of the -D interface, each with its storage type.
enum Element : int { kF32 = 0, kF16 = 1, kBf16 = 2 };
template <int E>
struct StorageOf {
  using Type = unsigned short;
};
template <>
struct StorageOf<kF32> {
  using Type = float;
};

template <int E>
EXPHIL_DEVICE float widen(typename StorageOf<E>::Type value) {
  if constexpr (E == kF32) {
    return value;
  } else if constexpr (E == kF16) {
    return half_to_float(value);
  } else {
    return __uint_as_float(static_cast<unsigned>(value) << 16);
  }
}

// Rounds to nearest even; NaN stays NaN.
template <int E>
EXPHIL_DEVICE typename StorageOf<E>::Type narrow(float value) {
  if constexpr (E == kF32) {
    return value;
  } else if constexpr (E == kF16) {
    return float_to_half(value);
  } else {
#if __CUDA_ARCH__ >= 800
    unsigned short result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(value));
    return result;
#else
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<unsigned short>((bits >> 16) | 0x40u);
    return static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
  }
}

// Two neighbouring elements of two bytes.
template <int E>
EXPHIL_DEVICE unsigned narrow_two(float first, float second) {
  return static_cast<unsigned>(narrow<E>(first)) | static_cast<unsigned>(narrow<E>(second)) << 16;
}

// Four elements, aligned to their size.
template <int E>
EXPHIL_DEVICE float4 widen_four(const typename StorageOf<E>::Type* from) {
  if constexpr (E == kF32) {
    return *reinterpret_cast<const float4*>(from);
  } else if constexpr (E == kBf16) {  // a bf16 is the upper half of its float
    const uint2 v = *reinterpret_cast<const uint2*>(from);
    return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u),
                       __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xffff0000u));
  } else {
    const ushort4 v = *reinterpret_cast<const ushort4*>(from);
    return make_float4(widen<E>(v.x), widen<E>(v.y), widen<E>(v.z), widen<E>(v.w));
  }
}

}  // namespace device
}  // namespace exphil
