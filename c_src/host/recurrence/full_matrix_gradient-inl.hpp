// The gradient of the recurrence on one tile for a full matrix A with the bilinear rule. A lane is a channel.
// Compiled per SIMD target; included by gradient.cpp only.
#if defined(EXPHIL_HOST_FULL_MATRIX_GRADIENT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPHIL_HOST_FULL_MATRIX_GRADIENT_INL
#undef EXPHIL_HOST_FULL_MATRIX_GRADIENT_INL
#else
#define EXPHIL_HOST_FULL_MATRIX_GRADIENT_INL
#endif

#include "host/recurrence/full_matrix-inl.hpp"
#include "host/recurrence/gradient_body-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

HWY_INLINE F of_projection(const ProjectionTile& rows, std::int64_t s, std::int64_t n, std::int64_t o) {
  const float* row = rows.data + s * rows.step;
  return rows.shared ? broadcast(row + n) : load(row + n * kPanel + o);
}

HWY_INLINE void add_to(float* to, F v) {
  store(load(to) + v, to);
}

// Step s, with h before and after it: (I - dt A/2) after = (I + dt A/2) before + dt x B. With q the gradient
// of the right side, (I - dt A/2)^T q = g, A receives dt/2 q (after + before)^T.
inline void full_matrix_step_back(const GradientTile& r, std::int64_t s, std::int64_t o, const float* before,
                                  const float* after) {
  const std::int64_t state = r.rule->state, step = s * kPanel + o;
  const F dy = load(r.dy + step), dt = load(r.tile->dt + step), dt_x = load(r.tile->dt_x + step);
  const F half_dt = dt * fill(0.5);
  for (std::int64_t n = 0; n < state; ++n) {
    const std::int64_t panel = n * kPanel + o;
    const F c = of_projection(r.c, s, n, o);
    store(hn::MulAdd(dy, c, load(r.g + panel)), r.g + panel);
    add_to(r.c_constant ? r.dc + panel : r.dc + n * kTile * kPanel + step, dy * load(after + panel));
  }
  const FullMatrix matrix{state, o, r.tile->system};
  matrix.build_transposed(r.a, r.g, dt);
  HWY_ALIGN float q[core::kMaxFullMatrixState * kPanel];
  matrix.solve(q);
  F ddt = load(r.ddt + step), ddt_x = load(r.ddt_x + step);
  for (std::int64_t n = 0; n < state; ++n) store(load(q + n * kPanel + o), r.g + n * kPanel + o);
  for (std::int64_t i = 0; i < state; ++i) {
    const F q_i = load(q + i * kPanel + o);
    add_to(r.b_constant ? r.db + i * kPanel + o : r.db + i * kTile * kPanel + step, q_i * dt_x);
    ddt_x = hn::MulAdd(q_i, of_projection(r.b, s, i, o), ddt_x);
    for (std::int64_t j = 0; j < state; ++j) {
      const std::int64_t at = (i * state + j) * kPanel + o, panel = j * kPanel + o;
      const F a = load(r.a + at), sum = load(after + panel) + load(before + panel);
      add_to(r.da + at, half_dt * q_i * sum);
      ddt = hn::MulAdd(q_i * a * fill(0.5), sum, ddt);
      add_to(r.g + panel, half_dt * a * q_i);
    }
  }
  store(ddt, r.ddt + step);
  store(ddt_x, r.ddt_x + step);
}

// history: {kTile + 1, state, kPanel}.
inline void full_matrix_gradient(const GradientTile& r, float* history) {
  const std::int64_t state = r.rule->state, row = state * kPanel;
  for (std::int64_t o = 0; o < kPanel; o += kLanes) {
    const FullMatrix matrix{state, o, r.tile->system};
    for (std::int64_t n = 0; n < state; ++n) store(load(r.h + n * kPanel + o), history + n * kPanel + o);
    for (std::int64_t s = 0; s < r.tile->steps; ++s) {
      const std::int64_t step = s * kPanel + o;
      float* h = history + (s + 1) * row;
      matrix.build(r.a, h - row, load(r.tile->dt + step), load(r.tile->dt_x + step), r.b.data + s * r.b.step,
                   r.b.shared);
      matrix.solve(h);
      for (std::int64_t n = 0; n < state && r.y != nullptr; ++n) {
        const F c = of_projection(r.c, s, n, o);
        store(hn::MulAdd(c, load(h + n * kPanel + o), load(r.y + step)), r.y + step);
      }
    }
    for (std::int64_t s = r.tile->steps; s-- > 0;) {
      full_matrix_step_back(r, s, o, history + s * row, history + (s + 1) * row);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
