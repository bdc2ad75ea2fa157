// Matrix products of a resident policy: y = x W^T + bias, for one row (a step) or many.
//
// Every output is accumulated over k in one fixed order: even k in one sum, odd k in another, both by fma,
// then (even + odd) + bias. A row's result therefore has the same bits alone and at any index of any batch,
// which rollback and step_batch depend on. A CBLAS chooses its order by the shape of the product, so none is
// used here. There are two sums because one chain of 4-cycle additions would leave a core half idle on a
// single row, and four would not fit in registers with many rows.
//
// Weights are stored in any precision and widened to f32 in registers: a single row is bound by reading them.
// int8: the sums are of q x, and the result is fma(even + odd, the row's scale, bias), in every kind of call.
//
// Callers: host/policy. Any thread.
#pragma once

#include <cstdint>

#include "core/precision.hpp"
#include "host/simd/simd.hpp"

namespace exphil::host {

// Weights in panels {panels(outs), depth, kPanel}, zero padded, and padded(outs) bias values. bf16: {panels,
// ceil(depth / 2), kPanel} of 32 bits each, an even k in the lower half and the next one in the upper half.
// Points into memory of its owner.
struct PackedMatrix {
  std::int64_t outs = 0, depth = 0;
  const void* weights = nullptr;
  const float* bias = nullptr;
  core::Precision precision = core::Precision::f32;
  const float* scales = nullptr;  // {padded(outs)}; int8 only
};

// Floats that pack_matrix fills, a multiple of kPanel.
std::int64_t packed_floats(std::int64_t outs, std::int64_t depth,
                           core::Precision precision = core::Precision::f32);

// from: {outs, depth} row-major, with the values of this precision (core/policy/rounding.hpp); bias: {outs}
// or null. `to` is zero.
PackedMatrix pack_matrix(const float* from, const float* bias, std::int64_t outs, std::int64_t depth,
                         float* to, core::Precision precision = core::Precision::f32);

// Rows of f32, row r at data + r step.
struct MatrixRows {
  float* data = nullptr;
  std::int64_t step = 0;
};

enum class Epilogue { store, add };  // y = product, or y = y + product (a residual)

// Computes panels [begin, end) of the outputs of `rows` rows. x has `depth` values per row; y has
// padded(outs), with zeros beyond outs.
void multiply(const PackedMatrix& matrix, const float* x, std::int64_t x_step, std::int64_t rows,
              MatrixRows y, Epilogue epilogue, std::int64_t begin, std::int64_t end);

}  // namespace exphil::host
