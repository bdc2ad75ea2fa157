// Which recurrent cells policy/cell_walk.cu walks. Compiled by the host compiler and by NVRTC.
#pragma once

#include "kernels/common/cell_walk_layout.cuh"
#include "kernels/policy/row_layout.cuh"

namespace exphil {
namespace policy {

// The product of a cell's state before the frame that makes all of its h, one gate after another; kNoPhase
// where there is none: then the cell is advanced frame by frame.
constexpr int recurrent_product(const Network& n, const GatedCell& cell) {
  const int gates = formulas::gates_of(cell.cell);
  for (int p = 0; cell.before != kNoVector && p < kMostPhases; ++p) {
    const Product& product = n.products[p];
    if (product.outputs != gates || product.in != cell.before) continue;
    bool plain = product.norm == Norm::none && !product.adds && !product.is_short;
    for (int i = 0; i < gates; ++i) {
      plain = plain && product.out[i].vector == cell.h[i] && n.size(cell.h[i]) == n.size(cell.before) &&
              n.size(cell.x[i]) == n.size(cell.before);
    }
    if (plain) return p;
  }
  return kNoPhase;
}

}  // namespace policy
}  // namespace exphil
