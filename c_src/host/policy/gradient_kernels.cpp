#include "host/policy/gradient_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/policy/gradient_kernels.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/policy/layer_kernels-inl.hpp"
#include "host/simd/math-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

// With u = (x - mean) scale and g = dy weight: dx = scale (g - mean(g) - u mean(g u)); without mean(g) for
// RMSNorm. Padding has weight and dy zero.
void normalize_part_back(const Norm& norm, const NormGradient& r, std::int64_t row, std::int64_t first,
                         std::int64_t n, std::int64_t all, float epsilon) {
  const float *x = r.x.data + row * r.x.step + first, *dy = r.dy.data + row * r.dy.step + first;
  const float *const weight = norm.weight_of(first, all), scale = part_scale(x, n, epsilon);
  float *dx = r.dx.data + row * r.dx.step + first, *const d_weight = r.d_weight + (weight - norm.weight);
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float u = x[i] * scale;
    d_weight[i] += dy[i] * u;
    sum += dy[i] * weight[i] * u;
  }
  const float mean = sum / static_cast<float>(n);
  for (std::int64_t i = 0; i < n; ++i) dx[i] += scale * (dy[i] * weight[i] - x[i] * scale * mean);
}

void run_normalize_back(const Norm& norm, const NormGradient& r, std::int64_t n, float epsilon,
                        std::int64_t rows) {
  for (std::int64_t row = 0; norm.parts > 0 && row < rows; ++row) {
    const std::int64_t size = n / norm.parts;
    for (std::int64_t first = 0; first < n; first += size) {
      normalize_part_back(norm, r, row, first, size, n, epsilon);
    }
  }
  if (norm.parts > 0) return;
  const bool layer_norm = norm.bias != nullptr;
  const std::int64_t width = padded(n);
  const F each = fill(1.0 / static_cast<double>(n));
  for (std::int64_t row = 0; row < rows; ++row) {
    const float *x = r.x.data + row * r.x.step, *dy = r.dy.data + row * r.dy.step;
    float* dx = r.dx.data + row * r.dx.step;
    const RowScale s = layer_norm ? scale_of<true>(x, n, epsilon) : scale_of<false>(x, n, epsilon);
    HWY_ALIGN float g_lanes[kPanel], gu_lanes[kPanel];
    for (std::int64_t o = 0; o < kPanel; o += kLanes) {
      F g_sum = fill(0.0), gu_sum = fill(0.0);
      for (std::int64_t i = o; i < width; i += kPanel) {
        const F u = (load(x + i) - s.mean) * s.scale, d = load(dy + i), g = d * load(norm.weight + i);
        g_sum = g_sum + g;
        gu_sum = hn::MulAdd(g, u, gu_sum);
        store(hn::MulAdd(d, u, load(r.d_weight + i)), r.d_weight + i);
        if (layer_norm) store(load(r.d_bias + i) + d, r.d_bias + i);
      }
      store(g_sum, g_lanes + o);
      store(gu_sum, gu_lanes + o);
    }
    float g_total = 0.0f, gu_total = 0.0f;
    for (std::int64_t lane = 0; lane < kPanel; ++lane) g_total += g_lanes[lane], gu_total += gu_lanes[lane];
    const F mean_g = layer_norm ? broadcast(&g_total) * each : fill(0.0),
            mean_gu = broadcast(&gu_total) * each;
    for (std::int64_t i = 0; i < width; i += kLanes) {
      const F u = (load(x + i) - s.mean) * s.scale, g = load(dy + i) * load(norm.weight + i);
      store(hn::MulAdd(s.scale, hn::NegMulAdd(u, mean_gu, g - mean_g), load(dx + i)), dx + i);
    }
  }
}

// Rows in their order in memory: the rows of one panel after another would each be a cache miss.
void run_convolve_back(const Convolution& c, const ConvolutionGradient& r, std::int64_t begin,
                       std::int64_t end) {
  const auto sums_back = [&](std::int64_t t, std::int64_t i) {
    float* const dv = r.dv + t * c.step + i;
    const F d = load(dv) * formulas::silu_derivative<Math>(convolution_sum(c, t, i));
    store(d, dv);
    store(load(r.d_bias + i) + d, r.d_bias + i);
    for (std::int64_t tap = 0; tap < c.taps; ++tap) {
      float* const to = r.d_weights + tap * c.step + i;
      store(hn::MulAdd(d, load(input_row(c, t + tap) + i), load(to)), to);
    }
  };
  const std::int64_t kept = c.taps - 1;  // the last row that reads the input of row t is t + kept
  // Rows before 0 are those of the history.
  const auto input_back = [&](std::int64_t t, std::int64_t i) {
    float* const to = t < 0 ? r.d_history + (t + kept) * c.step : r.dx + t * c.step;
    F dx = fill(0.0);
    for (std::int64_t later = std::max<std::int64_t>(0, -t); later < c.taps && t + later < c.seq; ++later) {
      const float* const weight = c.weights + (kept - later) * c.step + i;
      dx = hn::MulAdd(load(weight), load(r.dv + (t + later) * c.step + i), dx);
    }
    store(dx, to + i);
  };
  const std::int64_t first = r.d_history == nullptr ? kept : 0;
  for (std::int64_t t = 0; t < c.seq + kept; ++t) {
    for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) {
      if (t < c.seq) sums_back(t, i);
      if (t >= first) input_back(t - kept, i);
    }
  }
}

template <formulas::Cell kCell>
void cell_back_of(const CellRows& c, const CellGradient& r, std::int64_t begin, std::int64_t end) {
  constexpr int kStates = formulas::states_of(kCell), kGates = formulas::gates_of(kCell);
  const auto add = [](const MatrixRows& rows, std::int64_t at, F v) {
    store(load(rows.data + at) + v, rows.data + at);
  };
  for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) {
    F states[kStates], d_states[kStates], d_x[kGates], d_h[kGates];
    for (int s = 0; s < kStates; ++s) d_states[s] = load(r.d_states + s * c.step + i);
    for (std::int64_t t = c.seq; t-- > 0;) {
      const CellSums<kCell> sums(c, t, i);
      for (int s = 0; s < kStates; ++s) states[s] = load(r.before.data + t * r.before.step + s * c.step + i);
      d_states[0] = d_states[0] + load(r.d_out.data + t * r.d_out.step + i);
      formulas::cell_gradient<kCell, Math>(sums.x, sums.h, states, d_states, d_x, d_h);
      for (int g = 0; g < kGates; ++g) {
        const MatrixRows &to_x = r.d_x[static_cast<std::size_t>(g)],
                         &to_h = r.d_h[static_cast<std::size_t>(g)];
        add(to_x, t * to_x.step + i, d_x[g]);
        if constexpr (formulas::recurrent(kCell)) add(to_h, t * to_h.step + i, d_h[g]);
      }
    }
    for (int s = 0; s < kStates; ++s) store(d_states[s], r.d_states + s * c.step + i);
  }
}

void run_cell_back(const CellRows& c, const CellGradient& r, std::int64_t begin, std::int64_t end) {
  core::with_cell(c.cell, [&](auto cell) { cell_back_of<cell()>(c, r, begin, end); });
}

void run_sigmoid_back(MatrixRows x, MatrixRows dy, MatrixRows d_x, std::int64_t rows, std::int64_t n) {
  for (std::int64_t row = 0; row < rows; ++row) {
    in_vectors(0, n, [&](std::int64_t i, std::int64_t count) {
      const F s = formulas::sigmoid<Math>(load_some(x.data + i, count));
      store_some(load_some(dy.data + i, count) * s * (fill(1.0) - s), d_x.data + i, count);
    });
    x.data += x.step, dy.data += dy.step, d_x.data += d_x.step;
  }
}

void run_gate_back(const GateGradient& g, std::int64_t rows, std::int64_t n) {
  const auto at = [](const MatrixRows& m, std::int64_t row) { return m.data + row * m.step; };
  for (std::int64_t row = 0; row < rows; ++row) {
    in_vectors(0, n, [&](std::int64_t i, std::int64_t count) {
      const F x = load_some(at(g.x, row) + i, count), z = load_some(at(g.gate, row) + i, count);
      const F dy = load_some(at(g.dy, row) + i, count);
      store_some(dy * formulas::silu<Math>(z), at(g.d_x, row) + i, count);
      store_some(dy * x * formulas::silu_derivative<Math>(z), at(g.d_gate, row) + i, count);
    });
  }
}

void run_relu_back(const float* x, std::int64_t rows, std::int64_t step, std::int64_t panels, float* dx) {
  const F zero = fill(0.0);
  for (std::int64_t row = 0; row < rows; ++row, x += step, dx += step) {
    for (std::int64_t i = 0; i < panels * kPanel; i += kLanes) {
      store(hn::IfThenElse(zero < load(x + i), load(dx + i), zero), dx + i);
    }
  }
}

void run_activate_dt_back(MatrixRows dt, const float* bias, DtRange range, std::int64_t panels,
                          std::int64_t rows, MatrixRows d_dt) {
  const F lowest = broadcast(&range.lowest), highest = broadcast(&range.highest);
  for (std::int64_t row = 0; row < rows; ++row, dt.data += dt.step, d_dt.data += d_dt.step) {
    for (std::int64_t i = 0; i < panels * kPanel; i += kLanes) {
      store(formulas::activate_dt_gradient<Math>(load(dt.data + i), load(bias + i), true, lowest, highest,
                                                 load(d_dt.data + i)),
            d_dt.data + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {

HWY_EXPORT(run_normalize_back);
HWY_EXPORT(run_convolve_back);
HWY_EXPORT(run_cell_back);
HWY_EXPORT(run_sigmoid_back);
HWY_EXPORT(run_gate_back);
HWY_EXPORT(run_relu_back);
HWY_EXPORT(run_activate_dt_back);
HWY_EXPORT(run_sum_of);

void normalize_back(const Norm& norm, const NormGradient& gradient, std::int64_t n, float epsilon,
                    std::int64_t rows) {
  HWY_DYNAMIC_DISPATCH(run_normalize_back)(norm, gradient, n, epsilon, rows);
}

void convolve_back(const Convolution& convolution, const ConvolutionGradient& gradient, std::int64_t begin,
                   std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_convolve_back)(convolution, gradient, begin, end);
}

void cell_back(const CellRows& cell, const CellGradient& gradient, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_cell_back)(cell, gradient, begin, end);
}

void sigmoid_back(MatrixRows x, MatrixRows dy, MatrixRows d_x, std::int64_t rows, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(run_sigmoid_back)(x, dy, d_x, rows, n);
}

void gate_back(const GateGradient& gradient, std::int64_t rows, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(run_gate_back)(gradient, rows, n);
}

void relu_back(const float* x, std::int64_t rows, std::int64_t step, std::int64_t panels, float* dx) {
  HWY_DYNAMIC_DISPATCH(run_relu_back)(x, rows, step, panels, dx);
}

void activate_dt_back(MatrixRows dt, const float* bias, DtRange range, std::int64_t panels, std::int64_t rows,
                      MatrixRows d_dt) {
  HWY_DYNAMIC_DISPATCH(run_activate_dt_back)(dt, bias, range, panels, rows, d_dt);
}

float sum_of(const float* x, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(run_sum_of)(x, n);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
