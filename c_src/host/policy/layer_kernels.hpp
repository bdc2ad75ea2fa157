// The elementwise parts of a layer on the CPU. Padding is zero on entry and stays zero. Callers:
// host/policy/forward.cpp. Any thread.
#pragma once

#include <array>
#include <cstdint>

#include "host/simd/matmul.hpp"
#include "host/simd/simd.hpp"
#include "kernels/common/cells.cuh"

namespace exphil::host {

// Weights {padded(n)}. RMSNorm where bias is null: x / sqrt(mean(x^2) + epsilon) * weight. Otherwise
// LayerNorm: the same of x - mean(x), plus bias.
struct Norm {
  const float *weight = nullptr, *bias = nullptr;
  // 0: all n values, and zeros in the rest of their last panel. Else as many equal parts of them, each by
  // itself, and nothing beyond them; of RMSNorm only.
  std::int64_t parts = 0;
  std::int64_t repeats = 1;  // of the weight, over the parts
  const float* weight_of(std::int64_t first, std::int64_t n) const { return weight + first % (n / repeats); }
};

// For `rows` rows of n values. A row's result does not depend on the other rows.
void normalize(const Norm& norm, const MatrixRows& x, std::int64_t n, float epsilon, std::int64_t rows,
               const MatrixRows& out);

// dt' = clip(softplus(dt + bias)) in place, for panels [begin, end) of `rows` rows of `step` floats.
struct DtRange {
  float lowest = 0, highest = 0;
};
void activate_dt(float* dt, const float* bias, DtRange range, std::int64_t rows, std::int64_t step,
                 std::int64_t begin, std::int64_t end);

// The mean of n values.
float mean_of(const float* x, std::int64_t n);

// out = 1 / (1 + exp(-x)); out = x silu(gate): values [begin, end) of `rows` rows, and nothing beyond them.
void sigmoid(MatrixRows x, MatrixRows out, std::int64_t rows, std::int64_t begin, std::int64_t end);
void gate(MatrixRows x, MatrixRows gate, MatrixRows out, std::int64_t rows, std::int64_t begin,
          std::int64_t end);

// max(0, x) in place, for panels [begin, end) of `rows` rows of `step` floats.
void relu(float* x, std::int64_t rows, std::int64_t step, std::int64_t begin, std::int64_t end);

// The causal depthwise convolution and silu over one sequence, for panels [begin, end) of its channels.
struct Convolution {
  std::int64_t taps = 0;  // d_conv
  std::int64_t step = 0;  // floats in a row of every array but x: padded(channels)
  std::int64_t x_step = 0;
  const float* weights = nullptr;  // {taps, step}, oldest first
  const float* bias = nullptr;     // {step}
  float* history = nullptr;        // {taps - 1, step}: the inputs before row 0, oldest first; updated
  const float* ahead = nullptr;    // the history of the next call, which is prefetched; or null
  const float* x = nullptr;        // {seq, x_step}
  float* out = nullptr;            // {seq, step}
  std::int64_t seq = 0;
};
void convolve(const Convolution& convolution, std::int64_t begin, std::int64_t end);

// The frames of one sequence through a gated cell (kernels/common/cells.cuh), for panels [begin, end) of its
// units. Recurrent cells have one frame: their h depends on the state.
struct CellRows {
  formulas::Cell cell = formulas::Cell::gru;
  std::array<MatrixRows, formulas::kMaxGates> x, h;  // {seq, units}
  MatrixRows out;
  float* states = nullptr;  // {states_of(cell), step}; updated
  std::int64_t step = 0;    // padded(units)
  std::int64_t seq = 0;
};
void advance_cell(const CellRows& cell, std::int64_t begin, std::int64_t end);

}  // namespace exphil::host
