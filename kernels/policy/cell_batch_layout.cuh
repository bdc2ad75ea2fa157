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

}  // namespace policy
}  // namespace exphil
