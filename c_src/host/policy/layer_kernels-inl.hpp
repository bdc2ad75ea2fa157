// What a layer's kernels and their gradients share: sums over a row in one fixed order, the scale of a norm,
// the sums of a convolution and of a cell. Compiled per SIMD target; included by layer_kernels.cpp and
// gradient_kernels.cpp alone.
#if defined(EXPHIL_HOST_POLICY_LAYER_KERNELS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPHIL_HOST_POLICY_LAYER_KERNELS_INL
#undef EXPHIL_HOST_POLICY_LAYER_KERNELS_INL
#else
#define EXPHIL_HOST_POLICY_LAYER_KERNELS_INL
#endif

#include "core/policy/cells.hpp"
#include "host/policy/layer_kernels.hpp"
#include "host/simd/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

// Sum of squares: kPanel running sums, then added in lane order.
inline float sum_of_squares(const float* x, std::int64_t width) {
  HWY_ALIGN float lanes[kPanel];
  for (std::int64_t o = 0; o < kPanel; o += kLanes) {
    F sum = fill(0.0);
    for (std::int64_t i = o; i < width; i += kPanel) {
      const F v = load(x + i);
      sum = hn::MulAdd(v, v, sum);
    }
    store(sum, lanes + o);
  }
  float total = 0.0f;
  for (float lane : lanes) total += lane;
  return total;
}

// kPanel running sums of body(value), then added in lane order. Values beyond n do not count.
template <class Body>
HWY_INLINE float sum_of(const float* x, std::int64_t n, const Body& body) {
  HWY_ALIGN float lanes[kPanel], rest[kPanel] = {}, tail[kPanel] = {};
  const std::int64_t whole = n / kPanel * kPanel;
  for (std::int64_t i = whole; i < n; ++i) rest[i - whole] = x[i];
  for (std::int64_t o = 0; o < kPanel; o += kLanes) {
    F sum = fill(0.0);
    for (std::int64_t i = o; i < whole; i += kPanel) sum = sum + body(load(x + i));
    store(sum, lanes + o);
    if (whole < n) store(body(load(rest + o)), tail + o);
  }
  float total = 0.0f;
  for (std::int64_t lane = 0; lane < kPanel; ++lane) {
    total += lanes[lane];
    if (whole + lane < n) total += tail[lane];
  }
  return total;
}

inline float run_sum_of(const float* x, std::int64_t n) {
  return sum_of(x, n, [](F v) { return v; });
}
inline float run_mean_of(const float* x, std::int64_t n) {
  return run_sum_of(x, n) / static_cast<float>(n);
}

// 1 / sqrt(mean(x^2) + epsilon) of one part of a row.
inline float part_scale(const float* x, std::int64_t n, float epsilon) {
  const float squares = sum_of(x, n, [](F v) { return v * v; });
  return static_cast<float>(1.0 / std::sqrt(double{squares / static_cast<float>(n)} + double{epsilon}));
}

// Calls body(at, count) for values [begin, end) in vectors: with kLanes values, or fewer at the end.
template <class Body>
HWY_INLINE void in_vectors(std::int64_t begin, std::int64_t end, const Body& body) {
  for (; begin + kLanes <= end; begin += kLanes) body(begin, kLanes);
  if (begin < end) body(begin, end - begin);
}
// `count` values and zeros; writes `count` values alone.
HWY_INLINE F load_some(const float* from, std::int64_t count) {
  if (count == kLanes) return load(from);
  HWY_ALIGN float some[kLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) some[i] = from[i];
  return load(some);
}
HWY_INLINE void store_some(F v, float* to, std::int64_t count) {
  if (count == kLanes) return store(v, to);
  HWY_ALIGN float some[kLanes];
  store(v, some);
  for (std::int64_t i = 0; i < count; ++i) to[i] = some[i];
}

// A norm of a row is (x - mean) * scale; RMSNorm has no mean.
struct RowScale {
  F mean, scale;
};
template <bool kLayerNorm>
HWY_INLINE RowScale scale_of(const float* x, std::int64_t n, float epsilon) {
  const F mean = kLayerNorm ? fill(double{run_mean_of(x, n)}) : fill(0.0);
  float squares;
  if constexpr (kLayerNorm) {
    squares = sum_of(x, n, [mean](F v) { return (v - mean) * (v - mean); });
  } else {
    squares = sum_of_squares(x, padded(n));
  }
  const double variance = double{squares / static_cast<float>(n)};
  return {mean, fill(1.0 / std::sqrt(variance + double{epsilon}))};
}

// Row `index` of the concatenation of history and x.
HWY_INLINE const float* input_row(const Convolution& c, std::int64_t index) {
  const std::int64_t kept = c.taps - 1;
  return index < kept ? c.history + index * c.step : c.x + (index - kept) * c.x_step;
}

// What silu is taken of, for the vector of channels at i of row t.
HWY_INLINE F convolution_sum(const Convolution& c, std::int64_t t, std::int64_t i) {
  F sum = load(c.bias + i);
  for (std::int64_t tap = 0; tap < c.taps; ++tap) {
    sum = hn::MulAdd(load(c.weights + tap * c.step + i), load(input_row(c, t + tap) + i), sum);
  }
  return sum;
}

// The sums of a cell's gates for the vector of units at i of row t.
template <formulas::Cell kCell>
struct CellSums {
  static constexpr int kGates = formulas::gates_of(kCell);
  HWY_INLINE CellSums(const CellRows& c, std::int64_t t, std::int64_t i) {
    for (int g = 0; g < kGates; ++g) {
      const auto gate = static_cast<std::size_t>(g);
      x[g] = load(c.x[gate].data + t * c.x[gate].step + i);
      if constexpr (formulas::recurrent(kCell)) h[g] = load(c.h[gate].data + t * c.h[gate].step + i);
    }
  }
  F x[kGates], h[kGates];
};

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
