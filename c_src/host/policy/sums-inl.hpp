// Sums over a row in one fixed order. Compiled per SIMD target; included by layer_kernels.cpp and
// gradient_kernels.cpp alone.
#if defined(EXPHIL_HOST_POLICY_SUMS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPHIL_HOST_POLICY_SUMS_INL
#undef EXPHIL_HOST_POLICY_SUMS_INL
#else
#define EXPHIL_HOST_POLICY_SUMS_INL
#endif

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
  HWY_ALIGN float lanes[kPanel], tail[kPanel] = {};
  const std::int64_t whole = n / kPanel * kPanel;
  for (std::int64_t o = 0; o < kPanel; o += kLanes) {
    F sum = fill(0.0);
    for (std::int64_t i = o; i < whole; i += kPanel) sum = sum + body(load(x + i));
    store(sum, lanes + o);
    if (whole < n) store(body(load(x + whole + o)), tail + o);
  }
  float total = 0.0f;
  for (std::int64_t lane = 0; lane < kPanel; ++lane) {
    total += lanes[lane];
    if (whole + lane < n) total += tail[lane];
  }
  return total;
}

inline float run_mean_of(const float* x, std::int64_t n) {
  return sum_of(x, n, [](F v) { return v; }) / static_cast<float>(n);
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
