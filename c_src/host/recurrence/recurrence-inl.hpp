// The recurrence of a scan on one tile: h = Abar h + Bbar x, y = <C, h>, for diagonal A (one number for each
// channel and state). A lane is a channel. Compiled per SIMD target; included by channels.cpp and
// gradient.cpp.
#if defined(EXPHIL_HOST_SCAN_RECURRENCE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPHIL_HOST_SCAN_RECURRENCE_INL
#undef EXPHIL_HOST_SCAN_RECURRENCE_INL
#else
#define EXPHIL_HOST_SCAN_RECURRENCE_INL
#endif

#include "host/recurrence/stages-inl.hpp"
#include "host/simd/panels-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

using formulas::Discretization;
using C = formulas::Complex<F>;

// Numbers of A, B, C and h are F, or C where A is complex; these read and write both kinds.
template <class W>
struct Number;

template <>
struct Number<F> {
  static constexpr std::int64_t kParts = 1;
  static HWY_INLINE F shared(const float* from) { return broadcast(from); }
  static HWY_INLINE F panel(const float* from) { return load(from); }
  static HWY_INLINE void put(F v, float* to) { store(v, to); }
  static HWY_INLINE F multiply_add(F p, F q, F sum) { return hn::MulAdd(p, q, sum); }
  static HWY_INLINE F add_output(F c, F h, F y) { return hn::MulAdd(h, c, y); }
  static HWY_INLINE F output(F y) { return y; }
};

template <>
struct Number<C> {
  static constexpr std::int64_t kParts = 2;
  static HWY_INLINE C shared(const float* from) { return {broadcast(from), broadcast(from + 1)}; }
  static HWY_INLINE C panel(const float* from) { return {load(from), load(from + kPanel)}; }
  static HWY_INLINE void put(C v, float* to) {
    store(v.re, to);
    store(v.im, to + kPanel);
  }
  static HWY_INLINE C multiply_add(C p, C q, C sum) {
    return {hn::NegMulAdd(p.im, q.im, hn::MulAdd(p.re, q.re, sum.re)),
            hn::MulAdd(p.im, q.re, hn::MulAdd(p.re, q.im, sum.im))};
  }
  // y = 2 Re <C, h>: the factor comes last.
  static HWY_INLINE F add_output(C c, C h, F y) {
    return hn::NegMulAdd(c.im, h.im, hn::MulAdd(c.re, h.re, y));
  }
  static HWY_INLINE F output(F y) { return y + y; }
};

// Abar and gain (Bbar = gain dt' B; unused for real zoh) for A dt'. A packed real A of zoh is scaled
// (pack_a). kClamp: some |w| may exceed kExp2Range.
template <Discretization D, bool kClamp, class W>
HWY_INLINE void discretize(W a, F dt, W* abar, W* gain) {
  if constexpr (D == Discretization::zoh && Number<W>::kParts == 1) {
    *abar = formulas::scaled_decay<D, ScaledMath<kClamp>>(a, dt);
  } else {
    formulas::decay_and_gain<D, Math>(a * dt, abar, gain);
  }
}

// Where the steps of a tile find the state of a block, {state, parts, kPanel}: all the same one, or each that
// of its own agent (ScanSequence).
struct BlockStates {
  // Steps. Two make a step of 256 agents 5% slower; six are as good (bench/results/host.md).
  static constexpr std::int64_t kAhead = 4;

  float* h = nullptr;  // or null
  float* const* to = nullptr;
  float* const* from = nullptr;  // of the agents of the tile's first step, and of those after it ...
  std::int64_t left = 0;         // ... so many in all
  std::int64_t at = 0;           // of this block

  const float* read_at(std::int64_t s) const { return h != nullptr ? h : from[s] + at; }
  float* write_at(std::int64_t s) const { return h != nullptr ? h : to[s] + at; }
  // What is read some steps later, or null: no core foresees another agent's memory.
  const float* ahead(std::int64_t s) const {
    return h == nullptr && s + kAhead < left ? from[s + kAhead] + at : nullptr;
  }
};

struct Recurrence {
  const ScanRule* rule;
  const ScanTile* tile;
  const float* a;  // of this block
  BlockStates h;
  ProjectionTile b, c;
  float* states;  // after the tile's first step, at the block's first channel; or null
  std::int64_t states_step;

  // Stores lanes [o, o + kLanes) of h after step s of the tile, right after they were written.
  HWY_INLINE void put_states(std::int64_t s, std::int64_t o) const {
    if (states == nullptr) return;
    const std::int64_t last = std::min<std::int64_t>(tile->lanes, o + kLanes);
    unpack_lanes(h.h, o, last, rule->state * rule->parts(), states + s * states_step);
  }
};

// Whether A of each channel of a block is -1, -2, ..., -state (as S4D-Real begins and Edifice keeps it). Then
// the decays of a step are the powers of e^-dt', and a state takes one product instead of an exponential.
inline bool is_ladder(const ScanRule& rule, const float* a, std::int64_t lanes) {
  if (rule.discretization != Discretization::zoh || rule.complex || rule.full_matrix) return false;
  for (std::int64_t n = 0; n < rule.state; ++n) {
    const float rung = static_cast<float>(-1 - n) * static_cast<float>(formulas::kLog2E);  // as pack_a
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      if (a[n * kPanel + lane] != rung) return false;
    }
  }
  return true;
}

// What a body of the recurrence knows at compile time.
struct AnyScan {
  static constexpr bool kShared = false;       // B and C are the same for all lanes
  static constexpr bool kClamp = true;         // some |A dt'| may exceed kExp2Range
  static constexpr bool kDecaysInput = false;  // see ScanSequence
  static constexpr bool kPowers = false;       // see is_ladder
};
struct SharedScan : AnyScan {
  static constexpr bool kShared = true;
};
struct SharedScanInRange : SharedScan {
  static constexpr bool kClamp = false;
};
struct DecayedScan : SharedScan {
  static constexpr bool kDecaysInput = true;
};
template <class Scan>
struct PowersOf : Scan {
  static constexpr bool kPowers = true;
};

template <Discretization D, class W, class Scan>
void diagonal(const Recurrence& r) {
  using N = Number<W>;
  const std::int64_t state = r.rule->state, steps = r.tile->steps;
  for (std::int64_t o = 0; o < kPanel; o += kLanes) {
    for (std::int64_t s = 0; s < steps; ++s) {
      const float *b_row = r.b.data + s * r.b.step, *c_row = r.c.data + s * r.c.step;
      const F dt = load(r.tile->dt + s * kPanel + o), dt_x = load(r.tile->dt_x + s * kPanel + o);
      const float *const from = r.h.read_at(s), *const ahead = o == 0 ? r.h.ahead(s) : nullptr;
      float* const to = r.h.write_at(s);
      F y = fill(0.0);
      // Two chains of products, of the odd and of the even powers.
      W power{}, next{}, square{};
      if constexpr (Scan::kPowers) {
        power = formulas::scaled_decay<D, ScaledMath<Scan::kClamp>>(fill(-formulas::kLog2E), dt);
        next = square = power * power;
      }
      for (std::int64_t n = 0; n < state; ++n) {
        const std::int64_t at = n * N::kParts, panel = at * kPanel + o;
        W abar, gain;
        if constexpr (Scan::kPowers) {
          abar = power;
          power = next;
          next = abar * square;
        } else {
          discretize<D, Scan::kClamp>(N::panel(r.a + panel), dt, &abar, &gain);
        }
        const W b = Scan::kShared || r.b.shared ? N::shared(b_row + at) : N::panel(b_row + panel);
        const W c = Scan::kShared || r.c.shared ? N::shared(c_row + at) : N::panel(c_row + panel);
        W input = b * dt_x;
        if constexpr (D != Discretization::zoh) input = gain * input;
        if constexpr (Scan::kDecaysInput) input = abar * input;
        const W h = N::multiply_add(abar, N::panel(from + panel), input);
        N::put(h, to + panel);
        if (ahead != nullptr) hwy::Prefetch(ahead + panel);
        y = N::add_output(c, h, y);
      }
      store(N::output(y), r.tile->y + s * kPanel + o);
      r.put_states(s, o);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
