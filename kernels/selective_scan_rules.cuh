// The discretizations as the scan kernels evaluate them, real and complex, over explicit float arithmetic.
//
// The formulas are those of formulas.cuh, rearranged for the special function unit and the issue slots, which
// are what bounds the scan (one exponential and 4 to 7 other instructions for every state and step):
//   - log2(e) is folded into A once per thread, so an exponential is one multiplication and one ex2;
//   - bilinear keeps k = 2 h, for which k' = r (k + dt x B) - k with r = 1 / (1/2 - A dt/4): one reciprocal,
//   two
//     fused multiply-adds, and no separate decay;
//   - foh multiplies (e^w - 1) by 1/A, known once per thread, and falls back to the series below |w| = 1/32,
//   where
//     the subtraction would cost more than five bits.
// A rule offers, for one state n of one channel:
//   Constants                     what a thread keeps of A[d, n]
//   Step                          what one time step has in common for every state: from dt' and a second
//   number v kPairHoldsX                   v is x, not dt' x decay(constants, step)        the coefficient
//   that pass one keeps for pass two input(constants, step, decay, b)     Bbar x advance(h, decay, input),
//   advance(h, decay, constants, step, b)     the next state multiply_decay(product, decay),
//   total_decay(constants, sum of dt'): of a whole chunk, for the carry
// The catch2 and golden tests compare every rule with core::scan_reference.
#pragma once

#include "device_math.cuh"

namespace exphil {
namespace scan {

using formulas::Discretization;

template <Discretization D>
struct RealRule {
  using State = float;
  static constexpr int kFloats = 1;
  static constexpr bool kPairHoldsX = D == Discretization::foh;
  // The total decay of a chunk is one exponential of the sum of dt', except for bilinear, where it is a
  // product.
  static constexpr bool kDecayFromSum = D != Discretization::bilinear;
  // How much more than pass one's decay the input costs to compute again: pass two then keeps it instead.
  static constexpr bool kInputIsCheap = D == Discretization::zoh || D == Discretization::bilinear;
  static constexpr float kStateScale = D == Discretization::bilinear ? 2.0f : 1.0f;  // kept state / h
  static constexpr float kReadOutScale = 1.0f / kStateScale;

  struct Constants {
    float a;        // A log2(e); for bilinear -A/4
    float inverse;  // foh only: 1/A
  };
  struct Step {
    float dt, v;
    float v1, v2, v3;  // series coefficients in powers of A log2(e), times v; not all are used
  };

  static EXPHIL_DEVICE Constants constants(const float* a) {
    const float value = *a;
    if constexpr (D == Discretization::bilinear) return {__fmul_rn(value, -0.25f), 0.0f};
    // Where 1/A overflows, |w| is far below the limit of the series and the inverse is not used.
    return {__fmul_rn(value, device::kLog2E),
            D == Discretization::foh && value != 0.0f ? 1.0f / value : 0.0f};
  }
  static EXPHIL_DEVICE Step step(float dt, float v) {
    constexpr float kHalf = device::kLn2 / 2, kSixth = device::kLn2 * device::kLn2 / 6;
    constexpr float kTwentyFourth = device::kLn2 * device::kLn2 * device::kLn2 / 24;
    Step s{dt, v, 0.0f, 0.0f, 0.0f};
    if constexpr (D == Discretization::foh) {
      s.v1 = __fmul_rn(dt, kHalf);
      s.v2 = __fmul_rn(dt, kSixth);
    } else if constexpr (D != Discretization::zoh && D != Discretization::bilinear) {
      const float v_dt = __fmul_rn(v, dt);
      s.v1 = __fmul_rn(v_dt, kHalf);
      if constexpr (D != Discretization::highorder) s.v2 = __fmul_rn(__fmul_rn(v_dt, dt), kSixth);
      if constexpr (D == Discretization::rk4) {
        s.v3 = __fmul_rn(__fmul_rn(__fmul_rn(v_dt, dt), dt), kTwentyFourth);
      }
    }
    return s;
  }

  static EXPHIL_DEVICE float decay(const Constants& k, const Step& s) {
    if constexpr (D == Discretization::bilinear) return device::reciprocal(__fmaf_rn(k.a, s.dt, 0.5f));
    return device::exp2_fast(__fmul_rn(k.a, s.dt));
  }
  static EXPHIL_DEVICE float input(const Constants& k, const Step& s, float decay, float b) {
    (void)decay;
    if constexpr (D == Discretization::foh) {
      const float w = __fmul_rn(k.a, s.dt);
      const float series = __fmaf_rn(__fmaf_rn(s.v2, w, s.v1), w, s.dt);
      const float direct = __fmaf_rn(decay, k.inverse, -k.inverse);
      const float gain = fabsf(w) < device::kLog2E / 32 ? series : direct;
      return __fmul_rn(gain, __fmul_rn(s.v, b));
    } else if constexpr (D == Discretization::highorder) {
      return __fmul_rn(__fmaf_rn(s.v1, k.a, s.v), b);
    } else if constexpr (D == Discretization::poly) {
      return __fmul_rn(__fmaf_rn(__fmaf_rn(s.v2, k.a, s.v1), k.a, s.v), b);
    } else if constexpr (D == Discretization::rk4) {
      return __fmul_rn(__fmaf_rn(__fmaf_rn(__fmaf_rn(s.v3, k.a, s.v2), k.a, s.v1), k.a, s.v), b);
    } else {
      return __fmul_rn(s.v, b);
    }
  }
  static EXPHIL_DEVICE float advance(float h, float decay, float input) {
    if constexpr (D == Discretization::bilinear) return __fmaf_rn(decay, __fadd_rn(h, input), -h);
    return __fmaf_rn(decay, h, input);
  }
  static EXPHIL_DEVICE float advance(float h, float decay, const Constants& k, const Step& s, float b) {
    if constexpr (D == Discretization::bilinear) return __fmaf_rn(decay, __fmaf_rn(s.v, b, h), -h);
    return advance(h, decay, input(k, s, decay, b));
  }

  static EXPHIL_DEVICE float one() { return 1.0f; }
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
  static constexpr bool kInputIsCheap = D == Discretization::zoh;
  static constexpr float kStateScale = 1.0f;
  static constexpr float kReadOutScale = 2.0f;

  struct Constants {
    float2 a;
  };
  struct Step {
    float dt, v;
  };

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
    // The rounding error of the phase, exact by one fused multiply-add: of hundreds of radians it would cost
    // 1e-5.
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

  static EXPHIL_DEVICE float2 one() { return {1.0f, 0.0f}; }
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
