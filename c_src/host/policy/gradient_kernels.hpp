// The elementwise parts of a policy's gradient on the CPU. Callers:
// host/policy/gradient.cpp. Any thread.
#pragma once

#include <cstdint>

#include "host/policy/layer_kernels.hpp"
#include "host/simd/matmul.hpp"
#include "host/simd/rows.hpp"

namespace exphil::host {

// What normalize() passes back: adds the gradient of x to dx, and those of weight and bias to theirs
// ({padded(n)}), row after row. d_bias is null for RMSNorm.
struct NormGradient {
  MatrixRows x, dy, dx;
  float *d_weight = nullptr, *d_bias = nullptr;
};
// Of a norm with parts, nothing beyond them.
void normalize_back(const Norm& norm, const NormGradient& gradient, std::int64_t n, float epsilon,
                    std::int64_t rows);

// What convolve() passes back for one sequence and panels [begin, end): `dv` holds the gradient of its output
// and receives that of its sums before silu; dx that of x; d_history {taps - 1, step}, where it is not null,
// that of the inputs before row 0; d_weights {taps, step} and d_bias {step} are added to.
struct ConvolutionGradient {
  float *dv = nullptr, *dx = nullptr, *d_weights = nullptr, *d_bias = nullptr, *d_history = nullptr;
};
void convolve_back(const Convolution& convolution, const ConvolutionGradient& gradient, std::int64_t begin,
                   std::int64_t end);

// What advance_cell() passes back for one sequence and panels [begin, end), from its last row to its first:
// adds to the gradients of the sums, and turns those of the states after the rows into those of the states
// before them, without what passes through h.
struct CellGradient {
  MatrixRows before;  // {seq, states_of(cell) step}: the states before each row
  MatrixRows d_out;
  std::array<MatrixRows, formulas::kMaxGates> d_x, d_h;
  float* d_states = nullptr;  // {states_of(cell), step}
};
void cell_back(const CellRows& cell, const CellGradient& gradient, std::int64_t begin, std::int64_t end);

// What sigmoid() and gate() pass back for n values of `rows` rows. x: what sigmoid() read. d_x and d_gate are
// stored, and nothing beyond their values.
void sigmoid_back(MatrixRows x, MatrixRows dy, MatrixRows d_x, std::int64_t rows, std::int64_t n);
struct GateGradient {
  MatrixRows x, gate, dy, d_x, d_gate;
};
void gate_back(const GateGradient& gradient, std::int64_t rows, std::int64_t n);

// dx = 0 where x is not positive, for so many panels of `rows` rows of `step` floats.
void relu_back(const float* x, std::int64_t rows, std::int64_t step, std::int64_t panels, float* dx);

// What activate_dt() passes back to `dt`, its input: the gradient `d_dt` of its result, through clip and
// softplus. In place, for so many panels of `rows` rows.
void activate_dt_back(MatrixRows dt, const float* bias, DtRange range, std::int64_t panels, std::int64_t rows,
                      MatrixRows d_dt);

// The sum of n values, as mean_of() adds them.
float sum_of(const float* x, std::int64_t n);

}  // namespace exphil::host
