// The elementwise parts of a policy's gradient on the CPU. Row strides are padded(n). Callers:
// host/policy/gradient.cpp. Any thread.
#pragma once

#include <cstdint>

#include "host/policy/layer_kernels.hpp"
#include "host/simd/matmul.hpp"

namespace exphil::host {

// What normalize() passes back: adds the gradient of x to dx, and those of weight and bias to theirs
// ({padded(n)}), row after row. d_bias is null for RMSNorm.
struct NormGradient {
  const float* x = nullptr;
  const float* dy = nullptr;
  float *dx = nullptr, *d_weight = nullptr, *d_bias = nullptr;
};
void normalize_back(const Norm& norm, const NormGradient& gradient, std::int64_t n, float epsilon,
                    std::int64_t rows);

// What convolve() passes back for one sequence and panels [begin, end): `dv` holds the gradient of its output
// and receives that of its sums before silu; dx that of x; d_weights {taps, step} and d_bias {step} are added
// to.
struct ConvolutionGradient {
  float *dv = nullptr, *dx = nullptr, *d_weights = nullptr, *d_bias = nullptr;
};
void convolve_back(const Convolution& convolution, const ConvolutionGradient& gradient, std::int64_t begin,
                   std::int64_t end);

// sums += every row, one after another, for panels [begin, end) of rows of `step` floats.
void add_rows(const float* from, std::int64_t rows, std::int64_t step, float* sums, std::int64_t begin,
              std::int64_t end);

// dx = 0 where x is not positive, for so many panels of `rows` rows of `step` floats.
void relu_back(const float* x, std::int64_t rows, std::int64_t step, std::int64_t panels, float* dx);

// What activate_dt() passes back to `dt`, its input: the gradient `d_dt` of its result, through clip and
// softplus. In place, for so many panels of `rows` rows.
void activate_dt_back(MatrixRows dt, const float* bias, DtRange range, std::int64_t panels, std::int64_t rows,
                      MatrixRows d_dt);

// The sum of n values, as mean_of() adds them.
float sum_of(const float* x, std::int64_t n);

// to[k step + row] = from[row from_step + k], for row < rows and k < columns.
void transpose(const float* from, std::int64_t from_step, std::int64_t rows, std::int64_t columns, float* to,
               std::int64_t step);

}  // namespace exphil::host
