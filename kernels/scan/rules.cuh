// The discretizations of the scan kernels, real and complex, in explicit float arithmetic.
//
// Real rules use the scaled forms of common/formulas.cuh: one exponential and 4 to 12 other instructions for
// every state and step, because the special function unit and the issue slots bound the scan. Complex rules
// use the plain forms.
//
// A rule provides, for one state n of one channel:
//   Constants                        a thread's constants of A[d, n]
//   Step, step(dt', v)               values of one time step for every state; v is dt' x, or x where
//                                    kPairHoldsX
//   decay(constants, step)           the coefficient of h; for bilinear r
//   input(constants, step, decay, b) Bbar x
//   advance(h, decay, input), advance(h, decay, constants, step, b)    the next state; start(): from zero
//   multiply_decay(product, decay), total_decay(constants, sum of dt') a chunk's total decay
//   multiply_totals(p, q), carry(h, total, end)                        combine consecutive chunks
// The Catch2 and golden tests compare every rule with core::scan_reference.
#pragma once

#include "kernels/common/device_math.cuh"

namespace exphil {
namespace scan {

using formulas::Discretization;

// A log2(e), for bilinear -A/4; for foh 1/A as well.
template <bool Inverse>
struct RealConstants {
  float a;
};
template <>
struct RealConstants<true> {
  float a, inverse;
};

template <Discretization D>
struct RealRule {
  using State = float;
  static constexpr int kFloats = 1;
  static constexpr bool kPairHoldsX = D == Discretization::foh;
  // The total decay of a chunk is one exponential of the sum of dt', except for bilinear, where it is a
  // product.
  static constexpr bool kDecayFromSum = D != Discretization::bilinear;
  static constexpr bool kDecaysArePowers = D == Discretization::zoh;  // of e^-dt' where A is -1, -2, ...
  static constexpr float kStateScale = D == Discretization::bilinear ? 2.0f : 1.0f;  // kept state / h
  static constexpr float kReadOutScale = 1.0f / kStateScale;

  using Constants = RealConstants<D == Discretization::foh>;
  struct Step {
    float dt, v;
  };

  static EXPHIL_DEVICE Constants constants(const float* a) {
    const float scaled = formulas::scale_a<D, device::ScaledMath>(*a);
    // Where 1/A overflows, |w| is far below the limit of the series and the inverse is not used.
    if constexpr (D == Discretization::foh)
      return {scaled, *a != 0.0f ? 1.0f / *a : 0.0f};
    else
      return {scaled};
  }
  static EXPHIL_DEVICE float inverse(const Constants& k) {
    if constexpr (D == Discretization::foh)
      return k.inverse;
    else
      return 0.0f;
  }
  static EXPHIL_DEVICE Step step(float dt, float v) { return {dt, v}; }

  static EXPHIL_DEVICE float decay(const Constants& k, const Step& s) {
    return formulas::scaled_decay<D, device::ScaledMath>(k.a, s.dt);
  }
  static EXPHIL_DEVICE float input(const Constants& k, const Step& s, float decay, float b) {
    return formulas::scaled_input<D, device::ScaledMath>(k.a, inverse(k), s.dt, s.v, decay, b);
  }
  static EXPHIL_DEVICE float advance(float h, float decay, float input) {
    return formulas::scaled_advance<D, device::ScaledMath>(h, decay, input);
  }
  static EXPHIL_DEVICE float advance(float h, float decay, const Constants& k, const Step& s, float b) {
    return formulas::scaled_advance<D, device::ScaledMath>(h, decay, k.a, inverse(k), s.dt, s.v, b);
  }

  // advance() from a state of zero.
  static EXPHIL_DEVICE float start(float decay, float input) {
    return D == Discretization::bilinear ? __fmul_rn(decay, input) : input;
  }

  // Whether A is -(n + 1); and the decay of the next such state from that of the one before and e^-dt'.
  static EXPHIL_DEVICE bool is_rung(const Constants& k, int n) {
    const float a = static_cast<float>(-1 - n);
    return k.a == constants(&a).a;
  }
  static EXPHIL_DEVICE float next_power(float decay, float base) { return __fmul_rn(decay, base); }

  static EXPHIL_DEVICE float one() { return 1.0f; }
  static EXPHIL_DEVICE float multiply_totals(float p, float q) { return __fmul_rn(p, q); }
  static EXPHIL_DEVICE float multiply_decay(float product, float decay) {
    if constexpr (D == Discretization::bilinear) return __fmaf_rn(product, decay, -product);
    return __fmul_rn(product, decay);
  }
  static EXPHIL_DEVICE float total_decay(const Constants& k, float sum_dt) {
    return device::exp2_fast(__fmul_rn(k.a, sum_dt));
  }
  static EXPHIL_DEVICE float carry(float h, float total_decay, float local_end) {
    return __fmaf_rn(total_decay, h, local_end);
  }
  static EXPHIL_DEVICE float read_out(float h, float c) { return __fmul_rn(h, c); }
  static EXPHIL_DEVICE float read_out(float h, float c, float sum) { return __fmaf_rn(h, c, sum); }
};

// Complex A, B, C and h; dt', x and y real: y = 2 Re <C, h>.
template <Discretization D>
struct ComplexRule {
  using State = float2;
  using Complex = formulas::Complex<device::Real>;
  static constexpr int kFloats = 2;
  static constexpr bool kPairHoldsX = false;
  static constexpr bool kDecayFromSum = false;  // the phase of a sum would lose bits that the product keeps
  static constexpr bool kDecaysArePowers = false;
  static constexpr float kStateScale = 1.0f;
  static constexpr float kReadOutScale = 2.0f;

  struct Constants {
    float2 a;
  };
  struct Step {
    float dt, v;
  };

  static EXPHIL_DEVICE bool is_rung(const Constants&, int) { return false; }
  static EXPHIL_DEVICE float2 next_power(float2 decay, float) { return decay; }
  static EXPHIL_DEVICE Constants constants(const float* a) { return {{a[0], a[1]}}; }
  static EXPHIL_DEVICE Step step(float dt, float v) { return {dt, v}; }
  static EXPHIL_DEVICE Complex scaled(const Constants& k, float dt) {
    return {{__fmul_rn(k.a.x, dt)}, {__fmul_rn(k.a.y, dt)}};
  }

  static EXPHIL_DEVICE float2 decay(const Constants& k, const Step& s) {
    const Complex w = scaled(k, s.dt);
    if constexpr (D == Discretization::bilinear) {
      const Complex r = formulas::decay<D, device::Math>(w);
      return {r.re.v, r.im.v};
    }
    // The rounding error of the phase, exact by one fused multiply-add. For a phase of hundreds of radians
    // the error would be 1e-5.
    const float lost = __fmaf_rn(k.a.y, s.dt, -w.im.v);
    float sine, cosine;
    device::sin_cos_sum(w.im.v, lost, &sine, &cosine);
    const float radius = device::Math::exp(w.re).v;
    return {__fmul_rn(radius, cosine), __fmul_rn(radius, sine)};
  }
  static EXPHIL_DEVICE float2 multiply(float2 p, float2 q) {
    return {__fmaf_rn(p.x, q.x, -__fmul_rn(p.y, q.y)), __fmaf_rn(p.x, q.y, __fmul_rn(p.y, q.x))};
  }
  static EXPHIL_DEVICE float2 input(const Constants& k, const Step& s, float2 decay, float2 b) {
    const float2 scaled_b = {__fmul_rn(s.v, b.x), __fmul_rn(s.v, b.y)};
    if constexpr (D == Discretization::zoh) return scaled_b;
    const Complex gain =
        formulas::input_gain<D, device::Math>(scaled(k, s.dt), Complex{{decay.x}, {decay.y}});
    return multiply({gain.re.v, gain.im.v}, scaled_b);
  }
  static EXPHIL_DEVICE float2 advance(float2 h, float2 decay, float2 input) {
    return {__fmaf_rn(decay.x, h.x, __fmaf_rn(-decay.y, h.y, input.x)),
            __fmaf_rn(decay.x, h.y, __fmaf_rn(decay.y, h.x, input.y))};
  }
  static EXPHIL_DEVICE float2 advance(float2 h, float2 decay, const Constants& k, const Step& s, float2 b) {
    return advance(h, decay, input(k, s, decay, b));
  }

  static EXPHIL_DEVICE float2 start(float2, float2 input) { return input; }

  static EXPHIL_DEVICE float2 one() { return {1.0f, 0.0f}; }
  static EXPHIL_DEVICE float2 multiply_totals(float2 p, float2 q) { return multiply(p, q); }
  static EXPHIL_DEVICE float2 multiply_decay(float2 product, float2 decay) {
    return multiply(product, decay);
  }
  static EXPHIL_DEVICE float2 total_decay(const Constants&, float) { return one(); }
  static EXPHIL_DEVICE float2 carry(float2 h, float2 total, float2 local_end) {
    return advance(h, total, local_end);
  }
  static EXPHIL_DEVICE float read_out(float2 h, float2 c) {
    return __fmaf_rn(-h.y, c.y, __fmul_rn(h.x, c.x));
  }
  static EXPHIL_DEVICE float read_out(float2 h, float2 c, float sum) {
    return __fmaf_rn(-h.y, c.y, __fmaf_rn(h.x, c.x, sum));
  }
};

}  // namespace scan
}  // namespace exphil
