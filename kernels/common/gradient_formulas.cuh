// The gradients of the formulas in formulas.cuh, for the same value types and math policies, and included in
// the same way: once for exphil::formulas, and again for each SIMD target.
//
// The gradient of a real loss by a complex number is dL/dRe + i dL/dIm. For z = f(w) with f analytic it is
// dL/dw = dL/dz conj(f'(w)), so every product below has a conjugate on its right.
#if !defined(EXPHIL_GRADIENT_FORMULAS_CUH) || defined(EXPHIL_FORMULAS_BEGIN)
#ifndef EXPHIL_FORMULAS_BEGIN
#define EXPHIL_GRADIENT_FORMULAS_CUH
#include "kernels/common/formulas.cuh"
#endif

#ifdef EXPHIL_FORMULAS_BEGIN
EXPHIL_FORMULAS_BEGIN
#else
namespace exphil {
namespace formulas {
#endif

// p conj(q)
template <class V>
EXPHIL_FN V times_conjugate(V p, V q) {
  return p * q;
}
template <class V>
EXPHIL_FN Complex<V> times_conjugate(Complex<V> p, Complex<V> q) {
  return {p.re * q.re + p.im * q.im, p.im * q.re - p.re * q.im};
}

// Re p conj(q): the gradient of a real factor of q in the product p.
template <class V>
EXPHIL_FN V real_product(V p, V q) {
  return p * q;
}
template <class V>
EXPHIL_FN V real_product(Complex<V> p, Complex<V> q) {
  return p.re * q.re + p.im * q.im;
}

template <class M, class V>
EXPHIL_FN V sigmoid(V v) {
  const V one = M::set(v, 1.0);
  return one / (one + M::exp(M::set(v, 0.0) - v));
}

template <class M, class V>
EXPHIL_FN V silu_derivative(V v) {
  const V one = M::set(v, 1.0), gate = sigmoid<M>(v);
  return gate * (one + v * (one - gate));
}

// The gradient of dt and of its bias from that of dt' = activate_dt(dt, bias, ...): zero where dt' was
// clamped.
template <class M, class V>
EXPHIL_FN V activate_dt_gradient(V dt, V bias, bool with_softplus, V lowest, V highest, V gradient) {
  const V sum = dt + bias, zero = M::set(sum, 0.0);
  const V active = with_softplus ? softplus<M>(sum) : sum;
  V result = with_softplus ? gradient * sigmoid<M>(sum) : gradient;
  result = M::select_less(active, lowest, zero, result);
  return M::select_less(highest, active, zero, result);
}

// The derivative of phi1, (e^w - phi1(w)) / w, with its limit 1/2 at w = 0. Below |w| = 1/2 the Taylor
// series (k + 1) w^k / (k + 2)! is exact to rounding (next term in f32: 1e-8; in double: 4e-20); above it the
// two differences lose four bits in all.
template <class M, class W>
EXPHIL_FN W phi1_derivative(W w, W exp_w, W phi) {
  W series = constant<M>(w, 1.0 / 45360.0);
  if constexpr (IsDouble<W>::value) {
    series = horner<M>(w, constant<M>(w, 1.0 / 22230464256000.0), 1.0 / 1394852659200.0, 1.0 / 93405312000.0,
                       1.0 / 6706022400.0, 1.0 / 518918400.0, 1.0 / 43545600.0, 1.0 / 3991680.0,
                       1.0 / 403200.0, 1.0 / 45360.0);
  }
  series =
      horner<M>(w, series, 1.0 / 5760.0, 1.0 / 840.0, 1.0 / 144.0, 1.0 / 30.0, 1.0 / 8.0, 1.0 / 3.0, 0.5);
  return series_below<M>(0.5, w, series, exp_w - phi);
}

// d Abar / dw from abar = decay(w) and gain = input_gain(w, abar).
template <Discretization D, class W>
EXPHIL_FN W decay_derivative(W abar, W gain) {
  if constexpr (D == Discretization::bilinear) {
    (void)abar;
    return gain * gain;
  } else {
    (void)gain;
    return abar;
  }
}

// d gain / dw. Not for zoh, whose gain is constant.
template <Discretization D, class M, class W>
EXPHIL_FN W input_gain_derivative(W w, W abar, W gain) {
  static_assert(D != Discretization::zoh, "the gain of zoh is constant");
  (void)abar, (void)gain;
  if constexpr (D == Discretization::foh) {
    return phi1_derivative<M>(w, abar, gain);
  } else if constexpr (D == Discretization::bilinear) {
    return gain * gain * constant<M>(w, 0.5);
  } else {
    W sum = constant<M>(w, 0.5);
    if constexpr (D == Discretization::poly) sum = sum + w * constant<M>(w, 1.0 / 3.0);
    if constexpr (D == Discretization::rk4) {
      sum = sum + w * (constant<M>(w, 1.0 / 3.0) + w * constant<M>(w, 1.0 / 8.0));
    }
    return sum;
  }
}

// What advance(h, abar, gain, dt_x, b) passes back from g, the gradient of its result: to h, to w = A dt',
// and to the product dt_x B, from which B receives input dt_x, and dt_x the real product of input and B.
template <class W>
struct StepGradient {
  W h, w, input;
};
template <Discretization D, class M, class W, class V>
EXPHIL_FN StepGradient<W> step_gradient(W g, W h, W w, W abar, W gain, V dt_x, W b) {
  StepGradient<W> out;
  out.h = times_conjugate(g, abar);
  if constexpr (D == Discretization::bilinear) {
    out.w = times_conjugate(times_conjugate(g, h), decay_derivative<D>(abar, gain));
  } else {
    out.w = times_conjugate(out.h, h);  // the derivative of Abar is Abar
  }
  if constexpr (D == Discretization::zoh) {
    (void)w, (void)dt_x, (void)b;
    out.input = g;
  } else {
    out.input = times_conjugate(g, gain);
    const W by_gain = times_conjugate(g, b) * dt_x;
    out.w = out.w + times_conjugate(by_gain, input_gain_derivative<D, M>(w, abar, gain));
  }
  return out;
}

// The same with the gradients of B and dt_x themselves.
template <class W, class V>
struct AdvanceGradient {
  W h, w, b;
  V dt_x;
};
template <Discretization D, class M, class W, class V>
EXPHIL_FN AdvanceGradient<W, V> advance_gradient(W g, W h, W w, W abar, W gain, V dt_x, W b) {
  const StepGradient<W> step = step_gradient<D, M>(g, h, w, abar, gain, dt_x, b);
  return {step.h, step.w, step.input * dt_x, real_product(step.input, b)};
}

#ifdef EXPHIL_FORMULAS_END
EXPHIL_FORMULAS_END
#else
}  // namespace formulas
}  // namespace exphil
#endif

#endif  // included for the first time, or for another target
