// Real and complex numbers as the kernels of the scan's gradient compute with them, over the formulas of
// common/gradient_formulas.cuh. Products that are added to a sum are fused. Included by those kernels only.
#pragma once

#include "kernels/common/gradient_formulas.cuh"
#include "kernels/scan/rules.cuh"

namespace exphil {
namespace scan {

using device::Real;
using ComplexReal = formulas::Complex<Real>;

EXPHIL_DEVICE Real multiply_add(Real p, Real q, Real sum) {
  return {__fmaf_rn(p.v, q.v, sum.v)};
}
EXPHIL_DEVICE Real subtract_product(Real p, Real q, Real sum) {
  return {__fmaf_rn(-p.v, q.v, sum.v)};
}

// What the kernels need of a number W, and how A is kept for rule D.
template <Discretization D, class W>
struct BackwardRule;

template <Discretization D>
struct BackwardRule<D, Real> {
  static constexpr int kFloats = 1;
  static constexpr bool kHasGain = D != Discretization::zoh;
  static constexpr float kReadOutScale = 1.0f;  // y / Re <C, h>
  // zoh keeps A log2(e): the sum for dt over the states is that much too large until it is scaled once.
  static constexpr float kDtScale = D == Discretization::zoh ? device::kLn2 : 1.0f;

  static EXPHIL_DEVICE Real load(const float* from) { return {from[0]}; }
  static EXPHIL_DEVICE void store(Real v, float* to) { to[0] = v.v; }
  static EXPHIL_DEVICE Real zero() { return {0.0f}; }
  static EXPHIL_DEVICE Real one() { return {1.0f}; }
  static EXPHIL_DEVICE Real constant(Real a) {
    return D == Discretization::zoh ? a * Real{device::kLog2E} : a;
  }
  static EXPHIL_DEVICE Real exponent(Real a, Real dt) { return a * dt; }  // A dt', but for zoh
  static EXPHIL_DEVICE void discretize(Real a, Real dt, Real* abar, Real* gain) {
    if constexpr (D == Discretization::zoh) {
      *abar = {device::exp2_fast(__fmul_rn(a.v, dt.v))};
      *gain = one();
    } else {
      formulas::decay_and_gain<D, device::Math>(a * dt, abar, gain);
    }
  }
  // Whether the product of Abar over steps follows from the sum of dt'. total_decay() is that product.
  static constexpr bool kDecayFromSum = D != Discretization::bilinear;
  static EXPHIL_DEVICE Real total_decay(Real a, float sum_dt) {
    if constexpr (D == Discretization::zoh) {
      return {device::exp2_unbiased_select(__fmul_rn(a.v, sum_dt))};
    } else {
      return {device::exp2_unbiased_select(__fmul_rn(__fmul_rn(a.v, sum_dt), device::kLog2E))};
    }
  }
  static EXPHIL_DEVICE Real multiply_add(Real p, Real q, Real sum) { return scan::multiply_add(p, q, sum); }
  // sum + p conj(q)
  static EXPHIL_DEVICE Real add_conjugate(Real sum, Real p, Real q) { return scan::multiply_add(p, q, sum); }
  // sum + w s, sum + s conj(h), sum + Re w conj(a), sum + Re c h
  static EXPHIL_DEVICE Real add_scaled(Real sum, Real w, Real s) { return scan::multiply_add(w, s, sum); }
  static EXPHIL_DEVICE Real add_scaled_conjugate(Real sum, Real s, Real h) {
    return scan::multiply_add(s, h, sum);
  }
  static EXPHIL_DEVICE Real add_real_product(Real sum, Real w, Real a) {
    return scan::multiply_add(w, a, sum);
  }
  static EXPHIL_DEVICE Real add_read_out(Real sum, Real c, Real h) { return scan::multiply_add(c, h, sum); }
};

template <Discretization D>
struct BackwardRule<D, ComplexReal> {
  static constexpr int kFloats = 2;
  static constexpr bool kHasGain = D != Discretization::zoh;
  static constexpr float kReadOutScale = 2.0f;
  static constexpr float kDtScale = 1.0f;

  static EXPHIL_DEVICE ComplexReal load(const float* from) { return {{from[0]}, {from[1]}}; }
  static EXPHIL_DEVICE void store(ComplexReal v, float* to) { to[0] = v.re.v, to[1] = v.im.v; }
  static EXPHIL_DEVICE ComplexReal zero() { return {{0.0f}, {0.0f}}; }
  static EXPHIL_DEVICE ComplexReal one() { return {{1.0f}, {0.0f}}; }
  static EXPHIL_DEVICE ComplexReal constant(ComplexReal a) { return a; }
  static EXPHIL_DEVICE ComplexReal exponent(ComplexReal a, Real dt) { return a * dt; }
  static EXPHIL_DEVICE void discretize(ComplexReal a, Real dt, ComplexReal* abar, ComplexReal* gain) {
    const typename ComplexRule<D>::Constants k{{a.re.v, a.im.v}};
    const float2 decay = ComplexRule<D>::decay(k, ComplexRule<D>::step(dt.v, 0.0f));
    *abar = {{decay.x}, {decay.y}};
    *gain = formulas::input_gain<D, device::Math>(a * dt, *abar);
  }
  // The phase of a sum would lose bits that the product keeps.
  static constexpr bool kDecayFromSum = false;
  static EXPHIL_DEVICE ComplexReal total_decay(ComplexReal, float) { return one(); }
  static EXPHIL_DEVICE ComplexReal multiply_add(ComplexReal p, ComplexReal q, ComplexReal sum) {
    return {subtract_product(p.im, q.im, scan::multiply_add(p.re, q.re, sum.re)),
            scan::multiply_add(p.im, q.re, scan::multiply_add(p.re, q.im, sum.im))};
  }
  static EXPHIL_DEVICE ComplexReal add_conjugate(ComplexReal sum, ComplexReal p, ComplexReal q) {
    return {scan::multiply_add(p.im, q.im, scan::multiply_add(p.re, q.re, sum.re)),
            subtract_product(p.re, q.im, scan::multiply_add(p.im, q.re, sum.im))};
  }
  static EXPHIL_DEVICE ComplexReal add_scaled(ComplexReal sum, ComplexReal w, Real s) {
    return {scan::multiply_add(w.re, s, sum.re), scan::multiply_add(w.im, s, sum.im)};
  }
  static EXPHIL_DEVICE ComplexReal add_scaled_conjugate(ComplexReal sum, Real s, ComplexReal h) {
    return {scan::multiply_add(s, h.re, sum.re), subtract_product(s, h.im, sum.im)};
  }
  static EXPHIL_DEVICE Real add_real_product(Real sum, ComplexReal w, ComplexReal a) {
    return scan::multiply_add(w.im, a.im, scan::multiply_add(w.re, a.re, sum));
  }
  static EXPHIL_DEVICE Real add_read_out(Real sum, ComplexReal c, ComplexReal h) {
    return subtract_product(c.im, h.im, scan::multiply_add(c.re, h.re, sum));
  }
};

}  // namespace scan
}  // namespace exphil
