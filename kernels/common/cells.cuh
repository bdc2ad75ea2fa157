// One step of a gated recurrence for one unit, and its gradient: the cells of policies, and those of the
// fused operators (kernels/recurrent). Compiled as formulas.cuh is, for the same value types and math
// policies: by the scalar reference, for each SIMD target and by NVRTC.
//
// A unit has gates_of(kind) sums from the input, x, in the order given below; where recurrent(kind), as many
// from the state of all units before the frame, h; and states_of(kind) states of its own. `out` is what the
// cell tells the phases after it; it is states[0] after the step for every kind.
//
//   gru       r, z, n    h' = (1 - z) tanh(x_n + r h_n) + z h        (Cho et al. 2014; h_n has its own bias)
//   lstm      i, f, g, o  c' = f c + i tanh(g);  h' = o tanh(c')      (Hochreiter and Schmidhuber 1997)
//   min_gru   z, v       h' = (1 - z) h + z v                         (Feng et al. 2024)
//   min_lstm  f, i, v    h' = (f h + i v) / (f + i + 1e-6)            (the same)
//
// r, z, i, f and o go through the sigmoid. The rest are cells of fused operators alone:
//
//   elu_gru      z, v    h' = (1 - z) h + z (elu(v) + 1), z through the sigmoid
//   diag_linear  a, b    h' = a h + b, a through the sigmoid
//   liquid       tau, v  h' = v + (h - v) exp(-1 / tau)             (the exact step of a liquid neuron)
//
//   mix          z, v    as min_gru, share as min_lstm, linear as diag_linear, of gates that have gone
//   share        f, i, v   through the sigmoid already
//   linear       a, b
//
// All cells without a product of the state are h' = decay h + input, and both depend on the gates alone.
#if !defined(EXPHIL_CELLS_CUH) || defined(EXPHIL_FORMULAS_BEGIN)
#ifndef EXPHIL_CELLS_CUH
#define EXPHIL_CELLS_CUH
namespace exphil {
namespace formulas {
// The numbers are part of the kernels' interface: append only.
enum class Cell : int {
  gru = 0,
  lstm = 1,
  min_gru = 2,
  min_lstm = 3,
  elu_gru = 4,
  diag_linear = 5,
  liquid = 6,
  mix = 7,
  share = 8,
  linear = 9
};
constexpr int gates_of(Cell cell) {
  if (cell == Cell::lstm) return 4;
  return cell == Cell::gru || cell == Cell::min_lstm || cell == Cell::share ? 3 : 2;
}
constexpr int states_of(Cell cell) {
  return cell == Cell::lstm ? 2 : 1;
}
constexpr bool recurrent(Cell cell) {
  return cell == Cell::gru || cell == Cell::lstm;
}
constexpr int kMaxGates = 4, kMostActivations = 5;
}  // namespace formulas
}  // namespace exphil
#endif

#ifndef EXPHIL_FORMULAS_BEGIN
#include "kernels/common/gradient_formulas.cuh"
#endif

#ifdef EXPHIL_FORMULAS_BEGIN
EXPHIL_FORMULAS_BEGIN
using ::exphil::formulas::Cell;
using ::exphil::formulas::gates_of;
using ::exphil::formulas::kMostActivations;
using ::exphil::formulas::recurrent;
using ::exphil::formulas::states_of;
#else
namespace exphil {
namespace formulas {
#endif

// By way of one exponential. Near 0, where that cancels, a series for f32; a double keeps 1e-16 without it.
template <class M, class V>
EXPHIL_FN V hyperbolic_tangent(V v) {
  const V zero = M::set(v, 0.0), one = M::set(v, 1.0), e = M::exp(zero - (M::abs(v) + M::abs(v)));
  const V magnitude = (one - e) / (one + e), wide = M::select_less(v, zero, zero - magnitude, magnitude);
  if constexpr (IsDouble<V>::value) {
    return wide;
  } else {
    const V s = v * v;
    V sum = M::set(v, -1382.0 / 155925);
    sum = M::set(v, 62.0 / 2835) + s * sum;
    sum = M::set(v, -17.0 / 315) + s * sum;
    sum = M::set(v, 2.0 / 15) + s * sum;
    sum = M::set(v, -1.0 / 3) + s * sum;
    const V near = v + v * s * sum;
    return M::select_less(M::abs(v), M::set(v, 0.4), near, wide);
  }
}

// What a cell without a product of the state does to its state in a step: h' = decay h + input.
template <class V>
struct LinearStep {
  V decay, input;
};

// z, v of mix; of min_gru and elu_gru after their activations.
template <class M, class V>
EXPHIL_FN LinearStep<V> mix_step(V z, V v) {
  return {M::set(z, 1.0) - z, z * v};
}
template <class M, class V>
EXPHIL_FN V share_total(V f, V i) {
  return f + (i + M::set(f, 1e-6));
}
// f, i, v of share; of min_lstm after its activations.
template <class M, class V>
EXPHIL_FN LinearStep<V> share_step(V f, V i, V v) {
  const V total = share_total<M>(f, i);
  return {f / total, (i / total) * v};
}
// elu(v) + 1
template <class M, class V>
EXPHIL_FN V raised_elu(V v) {
  return M::select_less(M::set(v, 0.0), v, v + M::set(v, 1.0), M::exp(v));
}

// x: a sum for each gate.
template <Cell kCell, class M, class V>
EXPHIL_FN LinearStep<V> linear_step(const V* x) {
  static_assert(!recurrent(kCell), "the step of this cell is not linear in its state");
  if constexpr (kCell == Cell::min_gru) {
    return mix_step<M>(sigmoid<M>(x[0]), x[1]);
  } else if constexpr (kCell == Cell::min_lstm) {
    return share_step<M>(sigmoid<M>(x[0]), sigmoid<M>(x[1]), x[2]);
  } else if constexpr (kCell == Cell::elu_gru) {
    return mix_step<M>(sigmoid<M>(x[0]), raised_elu<M>(x[1]));
  } else if constexpr (kCell == Cell::diag_linear) {
    return {sigmoid<M>(x[0]), x[1]};
  } else if constexpr (kCell == Cell::liquid) {
    const V one = M::set(x[0], 1.0), decay = M::exp((M::set(x[0], 0.0) - one) / x[0]);
    return {decay, x[1] * (one - decay)};
  } else if constexpr (kCell == Cell::mix) {
    return mix_step<M>(x[0], x[1]);
  } else if constexpr (kCell == Cell::share) {
    return share_step<M>(x[0], x[1], x[2]);
  } else {
    return {x[0], x[1]};
  }
}

// x, h: a sum for each gate; h of recurrent cells only. states: before the step; receives those after it.
template <Cell kCell, class M, class V>
EXPHIL_FN V advance_cell(const V* x, const V* h, V* states) {
  const V one = M::set(x[0], 1.0);
  if constexpr (kCell == Cell::gru) {
    const V r = sigmoid<M>(x[0] + h[0]), z = sigmoid<M>(x[1] + h[1]);
    const V n = hyperbolic_tangent<M>(x[2] + r * h[2]);
    states[0] = (one - z) * n + z * states[0];
  } else if constexpr (kCell == Cell::lstm) {
    const V i = sigmoid<M>(x[0] + h[0]), f = sigmoid<M>(x[1] + h[1]), o = sigmoid<M>(x[3] + h[3]);
    states[1] = f * states[1] + i * hyperbolic_tangent<M>(x[2] + h[2]);
    states[0] = o * hyperbolic_tangent<M>(states[1]);
  } else {
    const LinearStep<V> step = linear_step<kCell, M>(x);
    states[0] = step.decay * states[0] + step.input;
  }
  return states[0];
}

// Of the gates of mix and of share, from d, the gradient of the state after the step. Returns that of the
// state before it.
template <class M, class V>
EXPHIL_FN V mix_gradient(V z, V v, V h, V d, V* d_z, V* d_v) {
  *d_z = d * (v - h);
  *d_v = d * z;
  return d * (M::set(z, 1.0) - z);
}
template <class M, class V>
EXPHIL_FN V share_gradient(V f, V i, V v, V h, V d, V* d_f, V* d_i, V* d_v) {
  const V total = share_total<M>(f, i), out = (f * h + i * v) / total;
  *d_f = d * (h - out) / total;
  *d_i = d * (v - out) / total;
  *d_v = d * (i / total);
  return d * (f / total);
}

// What the gradient of a recurrent cell needs of its step: r, z, n of a GRU; i, f, g, o and the tanh of the
// new state of an LSTM. From x, h and states as before the step.
template <Cell kCell, class M, class V>
EXPHIL_FN void cell_activations(const V* x, const V* h, const V* states, V* activations) {
  static_assert(recurrent(kCell), "the others' gradients need next to nothing");
  activations[0] = sigmoid<M>(x[0] + h[0]), activations[1] = sigmoid<M>(x[1] + h[1]);
  if constexpr (kCell == Cell::gru) {
    activations[2] = hyperbolic_tangent<M>(x[2] + activations[0] * h[2]);
  } else {
    activations[2] = hyperbolic_tangent<M>(x[2] + h[2]), activations[3] = sigmoid<M>(x[3] + h[3]);
    activations[4] = hyperbolic_tangent<M>(activations[1] * states[1] + activations[0] * activations[2]);
  }
}

// With them: cell_gradient() of a recurrent cell.
template <Cell kCell, class M, class V>
EXPHIL_FN void recurrent_gradient(const V* activations, const V* h, const V* states, V* d_states, V* d_x,
                                  V* d_h) {
  const V one = M::set(h[0], 1.0), d = d_states[0];
  if constexpr (kCell == Cell::gru) {
    const V r = activations[0], z = activations[1], n = activations[2];
    d_x[2] = d * (one - z) * (one - n * n);
    d_x[1] = d * (states[0] - n) * z * (one - z);
    d_x[0] = d_x[2] * h[2] * r * (one - r);
    d_h[0] = d_x[0], d_h[1] = d_x[1], d_h[2] = d_x[2] * r;
    d_states[0] = d * z;
  } else {
    const V i = activations[0], f = activations[1], g = activations[2], o = activations[3];
    const V t = activations[4], d_c = d_states[1] + d * o * (one - t * t);
    d_x[0] = d_h[0] = d_c * g * i * (one - i);
    d_x[1] = d_h[1] = d_c * states[1] * f * (one - f);
    d_x[2] = d_h[2] = d_c * i * (one - g * g);
    d_x[3] = d_h[3] = d * t * o * (one - o);
    d_states[0] = M::set(d, 0.0), d_states[1] = d_c * f;
  }
}

// x, h and states as before the step. d_states: the gradient of the states after it, that of `out` added to
// the first; receives that of the states before it, without what passes through h. d_x, d_h: that of the
// sums.
template <Cell kCell, class M, class V>
EXPHIL_FN void cell_gradient(const V* x, const V* h, const V* states, V* d_states, V* d_x, V* d_h) {
  const V one = M::set(x[0], 1.0), d = d_states[0];
  if constexpr (recurrent(kCell)) {
    V activations[kMostActivations];
    cell_activations<kCell, M>(x, h, states, activations);
    recurrent_gradient<kCell, M>(activations, h, states, d_states, d_x, d_h);
  } else if constexpr (kCell == Cell::min_gru || kCell == Cell::elu_gru) {
    const V z = sigmoid<M>(x[0]);
    const V v = kCell == Cell::elu_gru ? raised_elu<M>(x[1]) : x[1];
    d_states[0] = mix_gradient<M>(z, v, states[0], d, &d_x[0], &d_x[1]);
    d_x[0] = d_x[0] * z * (one - z);
    if constexpr (kCell == Cell::elu_gru) {
      d_x[1] = d_x[1] * M::select_less(M::set(d, 0.0), x[1], one, v);
    }
  } else if constexpr (kCell == Cell::min_lstm) {
    const V f = sigmoid<M>(x[0]), i = sigmoid<M>(x[1]);
    d_states[0] = share_gradient<M>(f, i, x[2], states[0], d, &d_x[0], &d_x[1], &d_x[2]);
    d_x[0] = d_x[0] * f * (one - f);
    d_x[1] = d_x[1] * i * (one - i);
  } else if constexpr (kCell == Cell::mix) {
    d_states[0] = mix_gradient<M>(x[0], x[1], states[0], d, &d_x[0], &d_x[1]);
  } else if constexpr (kCell == Cell::share) {
    d_states[0] = share_gradient<M>(x[0], x[1], x[2], states[0], d, &d_x[0], &d_x[1], &d_x[2]);
  } else if constexpr (kCell == Cell::liquid) {
    const V decay = linear_step<kCell, M>(x).decay;
    d_x[0] = d * (states[0] - x[1]) * decay / (x[0] * x[0]);
    d_x[1] = d * (one - decay);
    d_states[0] = d * decay;
  } else {
    const V a = linear_step<kCell, M>(x).decay;
    d_x[0] = d * states[0];
    if constexpr (kCell == Cell::diag_linear) d_x[0] = d_x[0] * a * (one - a);
    d_x[1] = d;
    d_states[0] = d * a;
  }
}

#ifdef EXPHIL_FORMULAS_BEGIN
EXPHIL_FORMULAS_END
#else
}  // namespace formulas
}  // namespace exphil
#endif

#endif
