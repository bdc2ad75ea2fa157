// The elementwise functions of the AR-SSM layer for every SIMD target.
#include "host/semiseparable/rows.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/semiseparable/rows.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/simd/math-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

void run_relu(float* data, std::int64_t floats) {
  for (std::int64_t i = 0; i < floats; i += kLanes) {
    const F v = load(data + i);
    store(hn::IfThenElse(v < fill(0.0), fill(0.0), v), data + i);
  }
}

void run_gates(float* g, float* u, float* v, std::int64_t floats) {
  for (std::int64_t i = 0; i < floats; i += kLanes) {
    const F gate = fill(1.0) / (fill(1.0) + exponential(fill(0.0) - load(g + i)));
    store(gate, g + i);
    store(load(u + i) * gate, u + i);
    store(load(v + i) * gate, v + i);
  }
}

void run_read_out(float* k, const float* k_reverse, const float* v, std::int64_t floats) {
  for (std::int64_t i = 0; i < floats; i += kLanes) {
    F sum = load(k + i);
    if (k_reverse != nullptr) sum = sum + load(k_reverse + i);
    store(sum * load(v + i), k + i);
  }
}

void run_convolution(const ConvolutionRow& row, std::int64_t hidden) {
  const std::int64_t step = padded(hidden);
  std::int64_t i = 0;
  for (; i + kLanes <= hidden; i += kLanes) {
    F sum = hn::MulAdd(load(row.taps + step + i), load(row.x + i), load(row.y + i));
    if (row.x_before != nullptr) sum = hn::MulAdd(load(row.taps + i), load(row.x_before + i), sum);
    if (row.x_after != nullptr) sum = hn::MulAdd(load(row.taps + 2 * step + i), load(row.x_after + i), sum);
    store(sum, row.out + i);
  }
  for (; i < hidden; ++i) {
    float sum = row.taps[step + i] * row.x[i] + row.y[i];
    if (row.x_before != nullptr) sum += row.taps[i] * row.x_before[i];
    if (row.x_after != nullptr) sum += row.taps[2 * step + i] * row.x_after[i];
    row.out[i] = sum;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {
HWY_EXPORT(run_relu);
HWY_EXPORT(run_gates);
HWY_EXPORT(run_read_out);
HWY_EXPORT(run_convolution);

void relu(float* data, std::int64_t floats) {
  HWY_DYNAMIC_DISPATCH(run_relu)(data, floats);
}
void apply_gates(float* g, float* u, float* v, std::int64_t floats) {
  HWY_DYNAMIC_DISPATCH(run_gates)(g, u, v, floats);
}
void read_out(float* k, const float* k_reverse, const float* v, std::int64_t floats) {
  HWY_DYNAMIC_DISPATCH(run_read_out)(k, k_reverse, v, floats);
}
void add_convolution(const ConvolutionRow& row, std::int64_t hidden) {
  HWY_DYNAMIC_DISPATCH(run_convolution)(row, hidden);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
