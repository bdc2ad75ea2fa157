// Magnitudes, NaN and neutral elements of the accumulator types of the associative operations (float, int,
// long long, Complex<float>). Included by associative/sums.cuh and associative/recurrence.cuh, by the host
// compiler and by NVRTC. Pure functions.
#pragma once

#include "kernels/common/formulas.cuh"

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define EXPHIL_FABS fabsf
#define EXPHIL_INFINITY __int_as_float(0x7f800000)
#else
#define EXPHIL_FABS __builtin_fabsf
#define EXPHIL_INFINITY __builtin_huge_valf()
#endif

namespace exphil {
namespace associative {

using formulas::Complex;

constexpr float kRoom = 0x1p126f;  // intermediates below this are far from overflow
constexpr float kSmallestNormal = 0x1p-126f;
// A product of decays below the smallest normal number has lost bits, or is 0. For a state up to this size,
// its lost contribution is below 2^-62 and is ignored; a larger state is processed step by step.
constexpr float kVanishingLimit = 0x1p64f;

// At most n / d, and only slightly less, for n >= 0. These quotients are near the end of f32's range, where a
// device's exact division takes its slow path, a thousand cycles in a scan's hand-over.
EXPHIL_FN float quotient_below(float n, float d) {
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
  return __fdividef(n, d) * 0.99999f;
#else
  return n / d;
#endif
}

EXPHIL_FN float bound(float v) {
  return EXPHIL_FABS(v);
}
EXPHIL_FN float bound(Complex<float> v) {
  return EXPHIL_FABS(v.re) + EXPHIL_FABS(v.im);
}

EXPHIL_FN bool is_nan(float v) {
  return v != v;
}
EXPHIL_FN bool is_nan(Complex<float> v) {
  return v.re != v.re && v.im != v.im;
}  // both: keeps NaN

// Keeps NaN, unlike fmaxf: a segment whose peak is NaN or infinite is processed step by step.
EXPHIL_FN float larger(float peak, float v) {
  return v <= peak ? peak : v;
}
EXPHIL_FN float smaller(float left, float right) {
  return left < right ? left : right;
}

template <class V>
struct Zero {
  static EXPHIL_FN V value() { return V(0); }
};
template <class T>
struct Zero<Complex<T>> {
  static EXPHIL_FN Complex<T> value() { return {T(0), T(0)}; }
};

// -0 is the sum's exact neutral element: -0 + x is x, also for x = -0.
template <class V>
struct SumStart {
  static EXPHIL_FN V value() { return V(0); }
};
template <>
struct SumStart<float> {
  static EXPHIL_FN float value() { return -0.0f; }
};
template <>
struct SumStart<Complex<float>> {
  static EXPHIL_FN Complex<float> value() { return {-0.0f, -0.0f}; }
};

template <class V>
struct Lowest;
template <>
struct Lowest<float> {
  static EXPHIL_FN float low() { return -EXPHIL_INFINITY; }
  static EXPHIL_FN float high() { return EXPHIL_INFINITY; }
};
template <>
struct Lowest<int> {
  static EXPHIL_FN int low() { return -2147483647 - 1; }
  static EXPHIL_FN int high() { return 2147483647; }
};
template <>
struct Lowest<long long> {
  static EXPHIL_FN long long low() { return -9223372036854775807LL - 1; }
  static EXPHIL_FN long long high() { return 9223372036854775807LL; }
};

}  // namespace associative
}  // namespace exphil
