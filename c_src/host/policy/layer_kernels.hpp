// The elementwise parts of a Mamba layer on the CPU. Row strides are padded(n), padding is zero on entry and
// stays zero. Callers: host/policy/forward.cpp. Any thread.
#pragma once

#include <cstdint>

#include "host/simd/simd.hpp"

namespace exphil::host {

// out = x / sqrt(mean(x^2) + epsilon) * weight, for `rows` rows of n values. weight: {padded(n)}. Each row
// stands alone.
void rms_norm(const float* x, const float* weight, std::int64_t n, float epsilon, std::int64_t rows,
              float* out);

// The causal depthwise convolution and silu over one sequence, for panels [begin, end) of its channels.
struct Convolution {
  std::int64_t taps = 0;           // d_conv
  std::int64_t step = 0;           // floats in a row of every array here: padded(d_inner)
  const float* weights = nullptr;  // {taps, step}, oldest first
  const float* bias = nullptr;     // {step}
  float* history = nullptr;        // {taps - 1, step}: the inputs before row 0, oldest first; updated
  const float* x = nullptr;        // {seq, step}
  float* out = nullptr;            // {seq, step}
  std::int64_t seq = 0;
};
void convolve(const Convolution& convolution, std::int64_t begin, std::int64_t end);

}  // namespace exphil::host
