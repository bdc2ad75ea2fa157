// The formulas of the library, defined once: dt activation, silu, the discretizations, the state update. A
// formula that changes changes its gradient in gradient_formulas.cuh too. Compiled by the host compiler
// (scalar reference, SIMD code) and by NVRTC (kernels), so it includes nothing.
//
// Everything is generic over a real value type V (float, double, a Highway vector) and a math policy M with
// the static functions
//   V set(like, double)  V exp(V)  V log1p(V)  V abs(V)  V max(V, V)  V min(V, V)  void sin_cos(V, V*, V*)
//   V select_less(V left, V right, V if_less, V otherwise)
// and for the scaled forms below also
//   V multiply(V, V)  V add(V, V)  V multiply_add(V, V, V), rounded once  V negate(V)  V exp2(V)
//   V reciprocal(V)
// V has + - * /. Complex<V> is built on top. `like` only determines the type and lane count of a constant;
// constants are written in double, so that a double oracle gets them exactly, and are rounded to V at compile
// time.
//
// Source: Gu & Dao, "Mamba" (2023), section 3.2 and appendix A; the table of discretizations in
// docs/reference.md. Included once for exphil::formulas. c_src/host includes it again for each SIMD target,
// with EXPHIL_FORMULAS_BEGIN and _END opening and closing that target's own namespace: a compiler fixes the
// instruction set of a function where it is defined, not where it is instantiated.
#if !defined(EXPHIL_FORMULAS_CUH) || defined(EXPHIL_FORMULAS_BEGIN)

#ifdef EXPHIL_FN
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define EXPHIL_FN __host__ __device__ __forceinline__
#else
#define EXPHIL_FN inline __attribute__((always_inline))
#endif

#ifndef EXPHIL_FORMULAS_CUH
#define EXPHIL_FORMULAS_CUH
namespace exphil {
namespace formulas {
// The numbers are part of the kernels' -D interface: append only.
enum class Discretization : int { zoh = 0, foh = 1, bilinear = 2, highorder = 3, poly = 4, rk4 = 5 };
}  // namespace formulas
}  // namespace exphil
#endif

#ifdef EXPHIL_FORMULAS_BEGIN
EXPHIL_FORMULAS_BEGIN
using ::exphil::formulas::Discretization;
#else
namespace exphil {
namespace formulas {
#endif

template <class V>
struct Complex {
  V re, im;
};

// clang-format off
template <class V> EXPHIL_FN Complex<V> operator+(Complex<V> p, Complex<V> q) { return {p.re + q.re, p.im + q.im}; }
template <class V> EXPHIL_FN Complex<V> operator-(Complex<V> p, Complex<V> q) { return {p.re - q.re, p.im - q.im}; }
template <class V> EXPHIL_FN Complex<V> operator*(Complex<V> p, V s) { return {p.re * s, p.im * s}; }
template <class V> EXPHIL_FN Complex<V> operator*(Complex<V> p, Complex<V> q) {
  return {p.re * q.re - p.im * q.im, p.re * q.im + p.im * q.re};
}
template <class V> EXPHIL_FN Complex<V> operator/(Complex<V> p, Complex<V> q) {
  const V norm = q.re * q.re + q.im * q.im;
  return {(p.re * q.re + p.im * q.im) / norm, (p.im * q.re - p.re * q.im) / norm};
}

// A real constant of the same kind as `like`, and the real magnitude that decides between two branches.
template <class M, class V> EXPHIL_FN V constant(V like, double value) { return M::set(like, value); }
template <class M, class V> EXPHIL_FN Complex<V> constant(Complex<V> like, double value) {
  return {M::set(like.re, value), M::set(like.re, 0.0)};
}
template <class M, class V> EXPHIL_FN V magnitude(V v) { return M::abs(v); }
template <class M, class V> EXPHIL_FN V magnitude(Complex<V> v) { return M::max(M::abs(v.re), M::abs(v.im)); }

template <class M, class V> EXPHIL_FN V exponential(V v) { return M::exp(v); }
template <class M, class V> EXPHIL_FN Complex<V> exponential(Complex<V> v) {
  V sin, cos;
  M::sin_cos(v.im, &sin, &cos);
  const V radius = M::exp(v.re);
  return {radius * cos, radius * sin};
}

template <class M, class V> EXPHIL_FN V choose_less(V left, V right, V if_less, V otherwise) {
  return M::select_less(left, right, if_less, otherwise);
}
template <class M, class V>
EXPHIL_FN Complex<V> choose_less(V left, V right, Complex<V> if_less, Complex<V> otherwise) {
  return {M::select_less(left, right, if_less.re, otherwise.re), M::select_less(left, right, if_less.im, otherwise.im)};
}
// clang-format on

// log(1 + e^v) without overflow for large v or cancellation for very negative v.
template <class M, class V>
EXPHIL_FN V softplus(V v) {
  const V zero = M::set(v, 0.0);
  return M::max(v, zero) + M::log1p(M::exp(zero - M::abs(v)));
}

// v sigmoid(v). e^-v may overflow to infinity for very negative v: the quotient is then -0, the right limit.
template <class M, class V>
EXPHIL_FN V silu(V v) {
  return v / (M::set(v, 1.0) + M::exp(M::set(v, 0.0) - v));
}

// True for the oracle's types, which need more terms of a series than f32.
template <class W>
struct IsDouble {
  static constexpr bool value = false;
};
template <>
struct IsDouble<double> {
  static constexpr bool value = true;
};
template <>
struct IsDouble<Complex<double>> {
  static constexpr bool value = true;
};

// ((sum w + next) w + ...) by Horner's rule.
template <class M, class W>
EXPHIL_FN W horner(W, W sum) {
  return sum;
}
template <class M, class W, class... Rest>
EXPHIL_FN W horner(W w, W sum, double next, Rest... rest) {
  return horner<M>(w, sum * w + constant<M>(w, next), rest...);
}

// series where |w| is below the limit, numerator / w elsewhere.
template <class M, class W>
EXPHIL_FN W series_below(double limit, W w, W series, W numerator) {
  const auto size = magnitude<M>(w);
  const auto most = M::set(size, limit);
  // No 0/0 in the lane that is not selected.
  const W divisor = choose_less<M>(size, most, constant<M>(w, 1.0), w);
  return choose_less<M>(size, most, series, numerator / divisor);
}

// (e^w - 1) / w, with its limit 1 at w = 0. Below |w| = 1/4 the Taylor series is exact to rounding (next term
// in f32: w^7/8! < 2e-9; in double: w^13/14! < 2e-19); above it e^w - 1 loses less than three bits.
template <class M, class W>
EXPHIL_FN W phi1(W w, W exp_w) {
  W series = constant<M>(w, 1.0 / 5040.0);
  if constexpr (IsDouble<W>::value) {
    series = horner<M>(w, constant<M>(w, 1.0 / 6227020800.0), 1.0 / 479001600.0, 1.0 / 39916800.0,
                       1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0);
  }
  series = horner<M>(w, series, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0);
  return series_below<M>(0.25, w, series, exp_w - constant<M>(w, 1.0));
}

// Abar for w = A dt'. W is V or Complex<V>.
template <Discretization D, class M, class W>
EXPHIL_FN W decay(W w) {
  if constexpr (D == Discretization::bilinear) {
    const W half = w * constant<M>(w, 0.5);
    const W one = constant<M>(w, 1.0);
    return (one + half) / (one - half);
  } else {
    return exponential<M>(w);
  }
}

// Bbar / (B dt') for w = A dt' and abar = decay(w): Bbar x = gain dt' x B. For zoh it is 1, Mamba's Euler
// step.
template <Discretization D, class M, class W>
EXPHIL_FN W input_gain(W w, W abar) {
  const W one = constant<M>(w, 1.0);
  if constexpr (D == Discretization::zoh) {
    (void)abar;
    return one;
  } else if constexpr (D == Discretization::foh) {
    return phi1<M>(w, abar);
  } else if constexpr (D == Discretization::bilinear) {
    (void)abar;
    return one / (one - w * constant<M>(w, 0.5));
  } else {
    (void)abar;
    W sum = one + w * constant<M>(w, 0.5);
    if constexpr (D == Discretization::poly) sum = sum + w * w * constant<M>(w, 1.0 / 6.0);
    if constexpr (D == Discretization::rk4) {
      sum =
          one + w * (constant<M>(w, 0.5) + w * (constant<M>(w, 1.0 / 6.0) + w * constant<M>(w, 1.0 / 24.0)));
    }
    return sum;
  }
}

// The state update h' = Abar h + Bbar x, with Bbar x = gain (dt' x) B. W is V or Complex<V>; dt_x is real.
template <class V>
EXPHIL_FN V advance(V h, V abar, V gain, V dt_x, V b) {
  return abar * h + gain * b * dt_x;
}
template <class V>
EXPHIL_FN Complex<V> advance(Complex<V> h, Complex<V> abar, Complex<V> gain, V dt_x, Complex<V> b) {
  return abar * h + gain * b * dt_x;
}

// ---- Scaled forms: for loops over many dt' with the same A ----
//
// The same functions, rearranged so that terms that depend only on A are computed once and an exponential
// is one multiplication and a power of two. Real A only. `a` is scale_a(A).
//
// Every operation is one of M's, which round individually: all variants of a kernel give the same bits.
//
// Bilinear keeps k = 2 h: with r = 1 / (1/2 - A dt'/4), k' = r (k + dt' x B) - k. That is one reciprocal and
// two fused multiply-adds, without a separate Abar; scaled_decay is r, and y uses h = k / 2.

constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;

// A log2(e); for bilinear -A/4.
template <Discretization D, class M, class V>
EXPHIL_FN V scale_a(V a) {
  return M::multiply(a, M::set(a, D == Discretization::bilinear ? -0.25 : kLog2E));
}

// Abar; for bilinear r.
template <Discretization D, class M, class V>
EXPHIL_FN V scaled_decay(V a, V dt) {
  if constexpr (D == Discretization::bilinear) return M::reciprocal(M::multiply_add(a, dt, M::set(a, 0.5)));
  return M::exp2(M::multiply(a, dt));
}

// Bbar x, for bilinear dt' x B. v is dt' x, or x for foh; `inverse` is 1/A, used by foh only, and not where A
// = 0. foh subtracts where that costs at most five bits, and sums the series below |w| = 1/32. Powers of w =
// A dt' by Horner's rule, with the ln 2 that A log2(e) lacks.
template <Discretization D, class M, class V>
EXPHIL_FN V scaled_input(V a, V inverse, V dt, V v, V decay, V b) {
  const V half = M::set(a, kLn2 / 2), sixth = M::set(a, kLn2 * kLn2 / 6), one = M::set(a, 1.0);
  const V input = M::multiply(v, b);
  if constexpr (D == Discretization::zoh || D == Discretization::bilinear) return input;
  const V w = M::multiply(a, dt);
  if constexpr (D == Discretization::foh) {
    const V series = M::multiply(M::multiply_add(M::multiply_add(sixth, w, half), w, one), dt);
    const V direct = M::multiply_add(decay, inverse, M::negate(inverse));
    return M::multiply(M::select_less(M::abs(w), M::set(a, kLog2E / 32), series, direct), input);
  } else if constexpr (D == Discretization::highorder) {
    return M::multiply(M::multiply_add(half, w, one), input);
  } else if constexpr (D == Discretization::poly) {
    return M::multiply(M::multiply_add(M::multiply_add(sixth, w, half), w, one), input);
  } else {
    const V twenty_fourth = M::set(a, kLn2 * kLn2 * kLn2 / 24);
    const V cubic = M::multiply_add(M::multiply_add(twenty_fourth, w, sixth), w, half);
    return M::multiply(M::multiply_add(cubic, w, one), input);
  }
}

// The next state, for bilinear k'.
template <Discretization D, class M, class V>
EXPHIL_FN V scaled_advance(V h, V decay, V input) {
  if constexpr (D == Discretization::bilinear) return M::multiply_add(decay, M::add(h, input), M::negate(h));
  return M::multiply_add(decay, h, input);
}
// The next state computed from B directly, which saves bilinear an instruction.
template <Discretization D, class M, class V>
EXPHIL_FN V scaled_advance(V h, V decay, V a, V inverse, V dt, V v, V b) {
  if constexpr (D == Discretization::bilinear)
    return M::multiply_add(decay, M::multiply_add(v, b, h), M::negate(h));
  return scaled_advance<D, M>(h, decay, scaled_input<D, M>(a, inverse, dt, v, decay, b));
}

// The plain form; bilinear divides by the common divisor
// of Abar and gain only once. W is V or Complex<V>.
template <class M, class V>
EXPHIL_FN V inverse_of(V v) {
  return M::set(v, 1.0) / v;
}
template <class M, class V>
EXPHIL_FN Complex<V> inverse_of(Complex<V> v) {
  const V norm = M::multiply_add(v.re, v.re, v.im * v.im);
  return {v.re / norm, M::negate(v.im) / norm};
}
template <Discretization D, class M, class W>
EXPHIL_FN void decay_and_gain(W w, W* abar, W* gain) {
  if constexpr (D == Discretization::bilinear) {
    const W one = constant<M>(w, 1.0), half = w * constant<M>(w, 0.5);
    *gain = inverse_of<M>(one - half);
    *abar = (one + half) * *gain;
  } else {
    *abar = decay<D, M>(w);
    *gain = input_gain<D, M>(w, *abar);
  }
}

// dt' of one step. `lowest` and `highest` are infinities where no range was given. The clamp compares instead
// of using min and max, which would turn a NaN into a bound.
template <class M, class V>
EXPHIL_FN V activate_dt(V dt, V bias, bool with_softplus, V lowest, V highest) {
  V active = dt + bias;
  if (with_softplus) active = softplus<M>(active);
  active = M::select_less(active, lowest, lowest, active);
  return M::select_less(highest, active, highest, active);
}

#ifdef EXPHIL_FORMULAS_END
EXPHIL_FORMULAS_END
#else
}  // namespace formulas
}  // namespace exphil
#endif

#endif  // included for the first time, or for another target
