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
