// The gradient of a scan's recurrence on one tile of one block of channels, for diagonal A: recomputes the
// tile's states from the checkpoint before it, then handles its steps from the last to the first. A lane is
// a channel. Compiled per SIMD target; included by gradient.cpp and full_matrix_gradient-inl.hpp only.
#if defined(EXPHIL_HOST_GRADIENT_BODY_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPHIL_HOST_GRADIENT_BODY_INL
#undef EXPHIL_HOST_GRADIENT_BODY_INL
#else
#define EXPHIL_HOST_GRADIENT_BODY_INL
#endif

#include "host/recurrence/gradient.hpp"
#include "host/recurrence/recurrence-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

// One tile of one block. The gradients of dt and of dt x are those through Abar and through Bbar x.
struct GradientTile {
  const ScanRule* rule;
  const ScanTile* tile;  // dt, dt_x
  const float* a;        // of this block
  ProjectionTile b, c;
  const float* h;      // before the tile, {state, parts, kPanel}
  float* g;            // the gradient of h: after the tile, then before it
  const float* dy;     // {kTile, kPanel}: of <C, h>, twice where complex
  float* y;            // {kTile, kPanel}: <C, h> recomputed (half of it where complex); null: not needed
  float *ddt, *ddt_x;  // {kTile, kPanel}, added to
  float* da;           // {state, parts, kPanel}, added to
  // Added to: lanes of dB and dC, {state, parts, kTile, kPanel}; where constant {state, parts, kPanel}.
  float *db, *dc;
  bool b_constant, c_constant;
};

// Values of one state index during a tile, {kTile, parts, kPanel}; `before` has one more, the last state.
struct StateHistory {
  HWY_ALIGN float before[(kTile + 1) * 2 * kPanel], abar[kTile * 2 * kPanel], gain[kTile * 2 * kPanel];
};

template <class W>
struct GradientNumber;
template <>
struct GradientNumber<F> {
  static HWY_INLINE F zero() { return fill(0.0); }
  // sum + dy conj(h) with real dy: the gradient of C from dy and h, and of h from dy and C.
  static HWY_INLINE F add_scaled(F sum, F dy, F h) { return hn::MulAdd(dy, h, sum); }
  static HWY_INLINE F add_times(F sum, F w, F dt) { return hn::MulAdd(w, dt, sum); }
  static HWY_INLINE F add_real_product(F sum, F w, F a) { return hn::MulAdd(w, a, sum); }
  static HWY_INLINE void add(F v, float* to, std::int64_t) { store(load(to) + v, to); }
};
template <>
struct GradientNumber<C> {
  static HWY_INLINE C zero() { return {fill(0.0), fill(0.0)}; }
  static HWY_INLINE C add_scaled(C sum, F dy, C h) {
    return {hn::MulAdd(dy, h.re, sum.re), hn::NegMulAdd(dy, h.im, sum.im)};
  }
  static HWY_INLINE C add_times(C sum, C w, F dt) {
    return {hn::MulAdd(w.re, dt, sum.re), hn::MulAdd(w.im, dt, sum.im)};
  }
  static HWY_INLINE F add_real_product(F sum, C w, C a) {
    return hn::MulAdd(w.im, a.im, hn::MulAdd(w.re, a.re, sum));
  }
  static HWY_INLINE void add(C v, float* to, std::int64_t part) {
    store(load(to) + v.re, to);
    store(load(to + part) + v.im, to + part);
  }
};

// Recomputes state n over the tile into `history`; adds to y. kDecaysInput: see ScanSequence.
template <Discretization D, bool kClamp, class W, bool kDecaysInput>
HWY_INLINE void states_again(const GradientTile& r, std::int64_t at, std::int64_t o, W a,
                             StateHistory& history) {
  using N = Number<W>;
  const std::int64_t panel = at * kPanel + o, steps = r.tile->steps;
  W h = N::panel(r.h + panel);
  for (std::int64_t s = 0; s < steps; ++s) {
    const float* b_row = r.b.data + s * r.b.step;
    const W b = r.b.shared ? N::shared(b_row + at) : N::panel(b_row + panel);
    W abar, gain;
    discretize<D, kClamp>(a, load(r.tile->dt + s * kPanel + o), &abar, &gain);
    const std::int64_t place = s * N::kParts * kPanel;
    N::put(h, history.before + place);
    N::put(abar, history.abar + place);
    W input = b * load(r.tile->dt_x + s * kPanel + o);
    if constexpr (D != Discretization::zoh) {
      N::put(gain, history.gain + place);
      input = gain * input;
    }
    if constexpr (kDecaysInput) input = abar * input;
    h = N::multiply_add(abar, h, input);
    if (r.y != nullptr) {
      const float* c_row = r.c.data + s * r.c.step;
      const W c = r.c.shared ? N::shared(c_row + at) : N::panel(c_row + panel);
      float* y = r.y + s * kPanel + o;
      store(N::add_output(c, h, load(y)), y);
    }
  }
  N::put(h, history.before + steps * N::kParts * kPanel);
}

// The same as formulas::advance_gradient for h' = Abar (h + dt' x B), real zoh.
HWY_INLINE formulas::AdvanceGradient<F, F> decayed_input_gradient(F g, F h, F abar, F dt_x, F b) {
  const F decayed = g * abar;
  return {decayed, decayed * hn::MulAdd(b, dt_x, h), decayed * dt_x, decayed * b};
}

template <Discretization D, class W, bool kDecaysInput>
HWY_INLINE void steps_back(const GradientTile& r, std::int64_t at, std::int64_t o, W packed_a,
                           const StateHistory& history) {
  using N = Number<W>;
  using G = GradientNumber<W>;
  const std::int64_t panel = at * kPanel + o;
  W a = packed_a;
  // For real zoh, packed A is scaled by log2(e).
  if constexpr (D == Discretization::zoh && N::kParts == 1) a = a * fill(0.6931471805599453);
  W g = N::panel(r.g + panel), da = G::zero(), db = G::zero(), dc = G::zero();
  W after = N::panel(history.before + r.tile->steps * N::kParts * kPanel);
  for (std::int64_t s = r.tile->steps; s-- > 0;) {
    const float *b_row = r.b.data + s * r.b.step, *c_row = r.c.data + s * r.c.step;
    const W b = r.b.shared ? N::shared(b_row + at) : N::panel(b_row + panel);
    const W c = r.c.shared ? N::shared(c_row + at) : N::panel(c_row + panel);
    const std::int64_t step = s * kPanel + o, place = s * N::kParts * kPanel;
    const F dy = load(r.dy + step), dt = load(r.tile->dt + step), dt_x = load(r.tile->dt_x + step);
    const W before = N::panel(history.before + place), abar = N::panel(history.abar + place);
    W gain = abar;  // not used by zoh
    if constexpr (D != Discretization::zoh) gain = N::panel(history.gain + place);
    g = G::add_scaled(g, dy, c);
    formulas::AdvanceGradient<W, F> back;
    if constexpr (kDecaysInput) {
      back = decayed_input_gradient(g, before, abar, dt_x, b);
    } else {
      back = formulas::advance_gradient<D, Math>(g, before, W(a * dt), abar, gain, dt_x, b);
    }
    g = back.h;
    da = G::add_times(da, back.w, dt);
    store(G::add_real_product(load(r.ddt + step), back.w, a), r.ddt + step);
    store(load(r.ddt_x + step) + back.dt_x, r.ddt_x + step);
    const std::int64_t sum = (at * kTile + s) * kPanel + o, part = kTile * kPanel;
    if (r.b_constant) {
      db = db + back.b;
    } else {
      G::add(back.b, r.db + sum, part);
    }
    const W output = G::add_scaled(G::zero(), dy, after);
    if (r.c_constant) {
      dc = dc + output;
    } else {
      G::add(output, r.dc + sum, part);
    }
    after = before;
  }
  N::put(g, r.g + panel);
  G::add(da, r.da + panel, kPanel);
  if (r.b_constant) G::add(db, r.db + panel, kPanel);
  if (r.c_constant) G::add(dc, r.dc + panel, kPanel);
}

template <Discretization D, class W, bool kDecaysInput = false>
void diagonal_gradient(const GradientTile& given) {
  // Copies: the compiler would read what is given again after every store, which might have changed it.
  const ScanTile tile = *given.tile;
  GradientTile r = given;
  r.tile = &tile;
  StateHistory history;
  for (std::int64_t o = 0; o < kPanel; o += kLanes) {
    for (std::int64_t n = 0; n < r.rule->state; ++n) {
      const std::int64_t at = n * Number<W>::kParts;
      const W a = Number<W>::panel(r.a + at * kPanel + o);
      states_again<D, true, W, kDecaysInput>(r, at, o, a, history);
      steps_back<D, W, kDecaysInput>(r, at, o, a, history);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
