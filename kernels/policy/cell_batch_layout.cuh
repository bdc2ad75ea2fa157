// Which cells policy/cell_batch.cu and cell_wide.cu advance, and the shape of the first one's launch.
// Compiled by the host compiler and by NVRTC.
#pragma once

#include "kernels/policy/wide_layout.cuh"

namespace exphil {
namespace policy {

constexpr int kBatchRows = 16, kBatchUnits = 16, kBatchThreads = 128;

// The products of a layer that consists of them and the cell.
struct CellProducts {
  int x = kNoPhase, h = kNoPhase;
};
constexpr CellProducts cell_products(const Network& n, const GatedCell& cell) {
  CellProducts made;
  made.x = product_before(n, cell);
  if (made.x == kNoPhase || n.size(cell.before) % kBatchUnits != 0) return {};
  if (n.on_tensor_cores() && wide_cell(n, cell).units == 0) return {};
  made.h = recurrent_product(n, cell);
  return made;
}

}  // namespace policy
}  // namespace exphil
