#include "host/policy/layer_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/policy/layer_kernels.cpp"
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

void rms_norm(const Norm& norm, const float* x, std::int64_t n, float epsilon, std::int64_t rows,
              float* out) {
  const float* weight = norm.weight;
  const std::int64_t width = padded(n);
  for (std::int64_t r = 0; r < rows; ++r, x += width, out += width) {
    const float mean = sum_of_squares(x, width) / static_cast<float>(n);
    const F scale = fill(1.0 / std::sqrt(static_cast<double>(mean) + static_cast<double>(epsilon)));
    for (std::int64_t i = 0; i < width; i += kLanes) store(load(x + i) * scale * load(weight + i), out + i);
  }
}

void layer_norm(const Norm& norm, const float* x, std::int64_t n, float epsilon, std::int64_t rows,
                float* out) {
  const std::int64_t width = padded(n);
  for (std::int64_t r = 0; r < rows; ++r, x += width, out += width) {
    const F mean = fill(static_cast<double>(run_mean_of(x, n)));
    const float variance =
        sum_of(x, n, [mean](F v) { return (v - mean) * (v - mean); }) / static_cast<float>(n);
    const F scale = fill(1.0 / std::sqrt(static_cast<double>(variance) + static_cast<double>(epsilon)));
    for (std::int64_t i = 0; i < width; i += kLanes) {
      store(hn::MulAdd((load(x + i) - mean) * scale, load(norm.weight + i), load(norm.bias + i)), out + i);
    }
  }
}

void run_normalize(const Norm& norm, const float* x, std::int64_t n, float epsilon, std::int64_t rows,
                   float* out) {
  if (norm.bias == nullptr) return rms_norm(norm, x, n, epsilon, rows, out);
  layer_norm(norm, x, n, epsilon, rows, out);
}

void run_activate_dt(float* dt, const float* bias, DtRange range, std::int64_t rows, std::int64_t step,
                     std::int64_t begin, std::int64_t end) {
  const F lowest = broadcast(&range.lowest), highest = broadcast(&range.highest);
  for (std::int64_t r = 0; r < rows; ++r, dt += step) {
    for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) {
      store(formulas::activate_dt<Math>(load(dt + i), load(bias + i), true, lowest, highest), dt + i);
    }
  }
}

void run_relu(float* x, std::int64_t rows, std::int64_t step, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = 0; r < rows; ++r, x += step) {
    for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) {
      const F v = load(x + i);
      store(hn::IfThenElse(v < fill(0.0), fill(0.0), v), x + i);  // keeps NaN
    }
  }
}

// Row `index` of the concatenation of history and x.
HWY_INLINE const float* input_row(const Convolution& c, std::int64_t index) {
  const std::int64_t kept = c.taps - 1;
  return index < kept ? c.history + index * c.step : c.x + (index - kept) * c.step;
}

void run_convolve(const Convolution& c, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = 0; t < c.seq; ++t) {
    for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) {
      F sum = load(c.bias + i);
      for (std::int64_t tap = 0; tap < c.taps; ++tap) {
        sum = hn::MulAdd(load(c.weights + tap * c.step + i), load(input_row(c, t + tap) + i), sum);
      }
      store(formulas::silu<Math>(sum), c.out + t * c.step + i);
    }
  }
  // Keeps the last taps - 1 inputs, oldest first. Each comes from a later row, so in ascending order no copy
  // overwrites an input that is still needed.
  for (std::int64_t kept = 0; kept + 1 < c.taps && c.seq > 0; ++kept) {
    const float* from = input_row(c, c.seq + kept);
    float* to = c.history + kept * c.step;
    for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) store(load(from + i), to + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {

HWY_EXPORT(run_normalize);
HWY_EXPORT(run_activate_dt);
HWY_EXPORT(run_mean_of);
HWY_EXPORT(run_relu);
HWY_EXPORT(run_convolve);

void normalize(const Norm& norm, const float* x, std::int64_t n, float epsilon, std::int64_t rows,
               float* out) {
  HWY_DYNAMIC_DISPATCH(run_normalize)(norm, x, n, epsilon, rows, out);
}

void activate_dt(float* dt, const float* bias, DtRange range, std::int64_t rows, std::int64_t step,
                 std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_activate_dt)(dt, bias, range, rows, step, begin, end);
}

float mean_of(const float* x, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(run_mean_of)(x, n);
}

void relu(float* x, std::int64_t rows, std::int64_t step, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_relu)(x, rows, step, begin, end);
}

void convolve(const Convolution& convolution, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_convolve)(convolution, begin, end);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
