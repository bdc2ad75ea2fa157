// Which cells policy/cell_batch.cu advances, and the shape of its launch. Compiled by the host compiler and
// by NVRTC.
#pragma once

#include "kernels/policy/cell_walk_layout.cuh"

namespace exphil {
namespace policy {

constexpr int kBatchRows = 16, kBatchUnits = 16, kBatchThreads = 128, kBatchStages = 2;

// The products of a layer that consists of them and the cell.
struct CellProducts {
  int x = kNoPhase, h = kNoPhase;
};
constexpr CellProducts cell_products(const Network& n, const GatedCell& cell) {
  CellProducts made;
  made.x = n.on_tensor_cores() ? kNoPhase : product_before(n, cell);
  if (made.x == kNoPhase || n.size(cell.before) % kBatchUnits != 0) return {};
  made.h = recurrent_product(n, cell);
  return made;
}

// Of each stage a slice for each product, of a segment: X with a column of padding, and W. And what a row
// needs.
constexpr int cell_batch_shared_bytes(const Network& n, const GatedCell& cell) {
  const int columns = formulas::gates_of(cell.cell) * kBatchUnits;
  const int slice = round_up(kSegment / 4 * ((kBatchRows + 1) * 16 + columns * 4 * n.weight_bytes()), 16);
  return 2 * kBatchStages * slice + kBatchRows * (16 + 8);
}

}  // namespace policy
}  // namespace exphil
