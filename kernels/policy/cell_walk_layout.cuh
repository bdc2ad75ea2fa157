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

// The product of hidden that makes x of a cell, where a layer consists of this product, that of the state,
// and the cell, whose output replaces hidden. kNoPhase elsewhere.
constexpr int product_before(const Network& n, const GatedCell& cell) {
  const int recurrent = recurrent_product(n, cell), gates = formulas::gates_of(cell.cell);
  const Block& layer = n.layer;
  if (recurrent == kNoPhase || cell.adds || cell.out != n.hidden) return kNoPhase;
  if (layer.count != 3 || layer.phases[0].kind != Kind::product || layer.phases[2].kind != Kind::cell ||
      layer.phases[1].kind != Kind::product || layer.phases[1].index != recurrent) {
    return kNoPhase;
  }
  const int index = layer.phases[0].index;
  const Product& product = n.products[index];
  bool fits = product.in == n.hidden && product.outputs == gates && !product.adds && !product.is_short &&
              !product.diagonal;
  for (int i = 0; i < gates; ++i) fits = fits && product.out[i].vector == cell.x[i];
  return fits ? index : kNoPhase;
}
// The same of a cell whose layers can be a pipeline: frame t of a layer needs its own frame t - 1 and frame t
// of the layer before, and nothing else of a frame is read twice.
constexpr int pipelined_product(const Network& n, const GatedCell& cell) {
  const bool fits = n.layers > 1 && few_rows(n.size(n.hidden)) >= kFollowedRows;
  return fits ? product_before(n, cell) : kNoPhase;
}

}  // namespace policy
}  // namespace exphil
