// What the launches of a frame of a batch share that compute a cell and both products before it:
// policy/cell_batch.cu and cell_wide.cu. Compiled with the network and -D: CELL, its index.
#pragma once

#include "kernels/policy/cell.cuh"
#include "kernels/policy/cell_batch_layout.cuh"
#include "kernels/policy/product.cuh"

namespace exphil {
namespace policy {

constexpr CellProducts kProducts = cell_products(kNetwork, kIt);
static_assert(kProducts.x != kNoPhase && !kIt.adds, "a layer of two products and a cell");
using X = PhaseProduct<kProducts.x>;
using H = PhaseProduct<kProducts.h>;
static_assert(X::kOutputs == kGates * kUnits && H::kOutputs == kGates * kUnits && H::kK == kUnits,
              "one gate after another");

// One of the products' values, from its sum.
template <class P>
__device__ __forceinline__ float product_value(float sum, const ProductMatrix& matrix, int column,
                                               NormFactors norm) {
  const float bias = matrix.bias == nullptr ? 0.0f : __ldg(matrix.bias + column);
  return P::apply(completed<P>(sum, matrix, column, norm.mean), bias, norm.scale, 0.0f, column);
}

// A unit's frame: its sums, the values of its states before, of which those after take the place; the result
// is its output.
__device__ __forceinline__ float advance_unit(const CellBatchArguments& args, int unit, NormFactors norm,
                                              const float (&of_x)[kGates], const float (&of_h)[kGates],
                                              Real (&states)[kStates]) {
  Real x[kGates], h[kGates];
#pragma unroll
  for (int gate = 0; gate < kGates; ++gate) {
    const int column = gate * kUnits + unit;
    x[gate] = {product_value<X>(of_x[gate], args.of_x, column, norm)};
    h[gate] = {product_value<H>(of_h[gate], args.of_h, column, {1.0f, 0.0f})};
  }
  return formulas::advance_cell<kIt.cell, Math>(x, h, states).v;
}

// The columns of hidden beyond the units, by `threads` threads of the first block of each row of them.
__device__ __forceinline__ void put_zeros(const CellBatchArguments& args, long long first, int rows,
                                          int thread, int threads) {
  constexpr int kRest = kColumns - kUnits;
  if (kRest == 0 || blockIdx.x > 0) return;
  for (int i = thread; i < rows * kRest; i += threads) {
    const long long row = first + i / most(kRest, 1);
    if (row < args.rows) args.out[row * kColumns + kUnits + i % most(kRest, 1)] = 0.0f;
  }
}

}  // namespace policy
}  // namespace exphil
