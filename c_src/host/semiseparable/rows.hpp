// The elementwise parts of the AR-SSM layer on the CPU, for rows whose stride is padded(n). Callers:
// semiseparable/layer.cpp. Any thread.
#pragma once

#include <cstdint>

#include "host/simd/simd.hpp"

namespace exphil::host {

// max(data, 0), keeping NaN. `floats` is a multiple of kPanel in all of these.
void relu(float* data, std::int64_t floats);

// g = sigmoid(g); u *= g; v *= g.
void apply_gates(float* g, float* u, float* v, std::int64_t floats);

// k = (k + k_reverse) v; k_reverse may be null.
void read_out(float* k, const float* k_reverse, const float* v, std::int64_t floats);

// out = y + the depthwise convolution of one position: x_before and x_after are null at the ends of a
// sequence. taps: {3, padded(hidden)}; out, y and the x hold `hidden` values.
struct ConvolutionRow {
  const float *x_before = nullptr, *x = nullptr, *x_after = nullptr;
  const float *taps = nullptr, *y = nullptr;
  float* out = nullptr;
};
void add_convolution(const ConvolutionRow& row, std::int64_t hidden);

}  // namespace exphil::host
