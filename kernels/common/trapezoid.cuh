// What a frame of Mamba-3 needs beside its recurrence over heads (heads.cuh): the coefficients of the
// trapezoidal rule, cumulative angles, and their gradients. Compiled as formulas.cuh is, for the same value
// types and for math policies with `floor`.
#if !defined(EXPHIL_TRAPEZOID_CUH) || defined(EXPHIL_FORMULAS_BEGIN)
#ifndef EXPHIL_TRAPEZOID_CUH
#define EXPHIL_TRAPEZOID_CUH
#endif

#ifndef EXPHIL_FORMULAS_BEGIN
#include "kernels/common/cells.cuh"
#endif

#ifdef EXPHIL_FORMULAS_BEGIN
EXPHIL_FORMULAS_BEGIN
#else
namespace exphil {
namespace formulas {
#endif

// The state after a frame is decay S + before (the input of the frame before) + now (that of this frame).
template <class V>
struct TrapezoidStep {
  V before, now, decay;
};
// -A of a: 1 + a from 0 on, 1 / (1 - a) below it, and no less than the floor.
template <class M, class V>
EXPHIL_FN V trapezoid_rate(V a, V floor) {
  const V one = M::set(a, 1.0), more = one + M::abs(a);
  return M::max(M::select_less(a, M::set(a, 0.0), one / more, more), floor);
}
// With lambda = sigmoid(mix): decay = exp(A dt), before = (1 - lambda) dt decay, now = lambda dt.
template <class M, class V>
EXPHIL_FN TrapezoidStep<V> trapezoid_step(V dt, V a, V mix, V floor) {
  const V zero = M::set(a, 0.0), decay = M::exp(zero - trapezoid_rate<M>(a, floor) * dt);
  const V lambda = sigmoid<M>(mix);
  return {(M::set(a, 1.0) - lambda) * dt * decay, lambda * dt, decay};
}

template <class V>
struct TrapezoidGradient {
  V dt, a, mix;
};
// What trapezoid_step() passes back from the gradients of its results.
template <class M, class V>
EXPHIL_FN TrapezoidGradient<V> trapezoid_gradient(V dt, V a, V mix, V floor, TrapezoidStep<V> d) {
  const V zero = M::set(a, 0.0), one = M::set(a, 1.0), more = one + M::abs(a), lambda = sigmoid<M>(mix);
  const V free = M::select_less(a, zero, one / more, more), rate = M::max(free, floor);
  const V slope = M::select_less(a, zero, one / (more * more), one);
  const V decay = M::exp(zero - rate * dt), rest = one - lambda;
  const V d_exponent = (d.decay + d.before * rest * dt) * decay;
  const V d_lambda = d.now * dt - d.before * dt * decay;
  return {d.now * lambda + d.before * rest * decay - d_exponent * rate,
          M::select_less(free, floor, zero, zero - d_exponent * dt * slope), d_lambda * lambda * rest};
}

// The angle after a frame, in [0, 2 pi) but for its rounding: angle + pi tanh(rate) dt. 2 pi has two parts,
// the first of which is exact in f32.
template <class M, class V>
EXPHIL_FN V next_angle(V angle, V rate, V dt) {
  const V sum = angle + M::set(angle, 3.14159265358979323846) * hyperbolic_tangent<M>(rate) * dt;
  const V turns = M::floor(sum * M::set(angle, 0.15915494309189533577));
  return (sum - turns * M::set(angle, 6.28125)) - turns * M::set(angle, 0.00193530717958647693);
}
template <class V>
struct AngleGradient {
  V rate, dt;
};
template <class M, class V>
EXPHIL_FN AngleGradient<V> angle_gradient(V rate, V dt, V d_angle) {
  const V pi = M::set(rate, 3.14159265358979323846), t = hyperbolic_tangent<M>(rate);
  return {d_angle * pi * (M::set(rate, 1.0) - t * t) * dt, d_angle * pi * t};
}

#ifdef EXPHIL_FORMULAS_BEGIN
EXPHIL_FORMULAS_END
#else
}  // namespace formulas
}  // namespace exphil
#endif

#endif
