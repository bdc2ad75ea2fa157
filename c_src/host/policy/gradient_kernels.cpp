#include "host/policy/gradient_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/policy/gradient_kernels.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/policy/sums-inl.hpp"
#include "host/simd/math-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

struct RowScale {
  F mean, scale;
};

// As rms_norm and layer_norm find them.
RowScale scale_of(bool layer_norm, const float* x, std::int64_t n, float epsilon) {
  const F mean = fill(layer_norm ? double{run_mean_of(x, n)} : 0.0);
  const float squares = layer_norm ? sum_of(x, n, [mean](F v) { return (v - mean) * (v - mean); })
                                   : sum_of_squares(x, padded(n));
  const double variance = double{squares / static_cast<float>(n)};
  return {mean, fill(1.0 / std::sqrt(variance + double{epsilon}))};
}

// With u = (x - mean) scale and g = dy weight: dx = scale (g - mean(g) - u mean(g u)); without mean(g) for
// RMSNorm. Padding has weight and dy zero.
void run_normalize_back(const Norm& norm, const NormGradient& r, std::int64_t n, float epsilon,
                        std::int64_t rows) {
  const bool layer_norm = norm.bias != nullptr;
  const std::int64_t width = padded(n);
  const F each = fill(1.0 / static_cast<double>(n));
  for (std::int64_t row = 0; row < rows; ++row) {
    const float *x = r.x + row * width, *dy = r.dy + row * width;
    float* dx = r.dx + row * width;
    const RowScale s = scale_of(layer_norm, x, n, epsilon);
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

float run_sum_of(const float* x, std::int64_t n) {
  return sum_of(x, n, [](F v) { return v; });
}

HWY_INLINE const float* convolution_input(const Convolution& c, std::int64_t index) {
  const std::int64_t kept = c.taps - 1;
  return index < kept ? c.history + index * c.step : c.x + (index - kept) * c.step;
}

void run_convolve_back(const Convolution& c, const ConvolutionGradient& r, std::int64_t begin,
                       std::int64_t end) {
  for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) {
    F d_bias = load(r.d_bias + i);
    for (std::int64_t t = 0; t < c.seq; ++t) {
      F sum = load(c.bias + i);
      for (std::int64_t tap = 0; tap < c.taps; ++tap) {
        sum = hn::MulAdd(load(c.weights + tap * c.step + i), load(convolution_input(c, t + tap) + i), sum);
      }
      float* dv = r.dv + t * c.step + i;
      const F d = load(dv) * formulas::silu_derivative<Math>(sum);
      store(d, dv);
      d_bias = d_bias + d;
      for (std::int64_t tap = 0; tap < c.taps; ++tap) {
        float* to = r.d_weights + tap * c.step + i;
        store(hn::MulAdd(d, load(convolution_input(c, t + tap) + i), load(to)), to);
      }
    }
    store(d_bias, r.d_bias + i);
    for (std::int64_t t = 0; t < c.seq; ++t) {
      F dx = fill(0.0);
      for (std::int64_t later = 0; later < c.taps && t + later < c.seq; ++later) {
        const float* weight = c.weights + (c.taps - 1 - later) * c.step + i;
        dx = hn::MulAdd(load(weight), load(r.dv + (t + later) * c.step + i), dx);
      }
      store(dx, r.dx + t * c.step + i);
    }
  }
}

void run_add_rows(const float* from, std::int64_t rows, std::int64_t step, float* sums, std::int64_t begin,
                  std::int64_t end) {
  for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) {
    F sum = load(sums + i);
    for (std::int64_t row = 0; row < rows; ++row) sum = sum + load(from + row * step + i);
    store(sum, sums + i);
  }
}

void run_relu_back(const float* x, std::int64_t count, float* dx) {
  const F zero = fill(0.0);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    store(hn::IfThenElse(zero < load(x + i), load(dx + i), zero), dx + i);
  }
}

void run_activate_dt_back(const float* dt, const float* bias, DtRange range, std::int64_t n,
                          std::int64_t rows, float* d_dt) {
  const F lowest = broadcast(&range.lowest), highest = broadcast(&range.highest);
  const std::int64_t step = padded(n);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < step; i += kLanes) {
      const std::int64_t at = row * step + i;
      store(formulas::activate_dt_gradient<Math>(load(dt + at), load(bias + i), true, lowest, highest,
                                                 load(d_dt + at)),
            d_dt + at);
    }
  }
}

void run_transpose(const float* from, std::int64_t from_step, std::int64_t rows, std::int64_t columns,
                   float* to, std::int64_t step) {
  constexpr std::int64_t kSquare = 16;  // rows and columns whose lines stay in L1
  for (std::int64_t row0 = 0; row0 < rows; row0 += kSquare) {
    const std::int64_t row1 = row0 + kSquare < rows ? row0 + kSquare : rows;
    for (std::int64_t k = 0; k < columns; ++k) {
      for (std::int64_t row = row0; row < row1; ++row) to[k * step + row] = from[row * from_step + k];
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
HWY_EXPORT(run_add_rows);
HWY_EXPORT(run_relu_back);
HWY_EXPORT(run_activate_dt_back);
HWY_EXPORT(run_transpose);
HWY_EXPORT(run_sum_of);

void normalize_back(const Norm& norm, const NormGradient& gradient, std::int64_t n, float epsilon,
                    std::int64_t rows) {
  HWY_DYNAMIC_DISPATCH(run_normalize_back)(norm, gradient, n, epsilon, rows);
}

void convolve_back(const Convolution& convolution, const ConvolutionGradient& gradient, std::int64_t begin,
                   std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_convolve_back)(convolution, gradient, begin, end);
}

void add_rows(const float* from, std::int64_t rows, std::int64_t step, float* sums, std::int64_t begin,
              std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_add_rows)(from, rows, step, sums, begin, end);
}

void relu_back(const float* x, std::int64_t count, float* dx) {
  HWY_DYNAMIC_DISPATCH(run_relu_back)(x, count, dx);
}

void activate_dt_back(const float* dt, const float* bias, DtRange range, std::int64_t n, std::int64_t rows,
                      float* d_dt) {
  HWY_DYNAMIC_DISPATCH(run_activate_dt_back)(dt, bias, range, n, rows, d_dt);
}

float sum_of(const float* x, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(run_sum_of)(x, n);
}

void transpose(const float* from, std::int64_t from_step, std::int64_t rows, std::int64_t columns, float* to,
               std::int64_t step) {
  HWY_DYNAMIC_DISPATCH(run_transpose)(from, from_step, rows, columns, to, step);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
