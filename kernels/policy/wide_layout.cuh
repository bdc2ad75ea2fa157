// The shapes of the launches of warpgroups (policy/product_wide.cuh, cell_wide.cu). Compiled by the host
// compiler and by NVRTC.
#pragma once

#include "kernels/policy/cell_walk_layout.cuh"

namespace exphil {
namespace policy {

// Shared memory that a block may have where there are warpgroups.
constexpr long long kWideShared = 227 * 1024;
constexpr int kWideRows = 64;  // of a warpgroup
// Threads of a block of policy_product_wide, at most: as many as have registers for the sums of so many
// columns and for values that are on their way; and of policy_cell_wide.
constexpr int wide_threads(int columns) {
  return columns > 32 ? 384 : 512;
}
constexpr int kCellWideThreads = 512;

// Bytes of so many columns of weights, split.
constexpr long long wide_bytes(int k, int columns) {
  return 8LL * k * columns;
}
// Columns of a block of policy_product_wide for the inner dimension k; 0 where not even 16 fit.
constexpr int wide_columns(int k) {
  int columns = 64;
  while (columns >= 16 && wide_bytes(k, columns) > kWideShared) columns /= 2;
  return columns < 16 ? 0 : columns;
}
// Whether a product has this kernel: not one of few columns, whose many rows other tiles share better.
constexpr int kLeastWide = 4;  // blocks side by side
constexpr bool has_wide(const Network& n, const Product& product) {
  const int columns = wide_columns(n.size(product.in));
  return n.on_tensor_cores() && !product.is_short && !product.diagonal && columns > 0 &&
         divide_up(n.rows(product), columns) >= kLeastWide;
}
constexpr long long wide_product_bytes(int k) {
  return wide_bytes(k, wide_columns(k));
}
// Products side by side that make so many columns of a warpgroup, of 8, 16, 24 or 32 columns each.
constexpr int wide_tiles(int columns) {
  return columns == 24 ? 3 : 2;
}

// A block of policy_cell_wide: units with all gates; besides their weights for each pair of warpgroups the
// place in which they give each other the sums of half of their rows, what the products have for each column,
// and the factors of the norms of 64 rows. No units where they do not fit.
struct WideCell {
  int units = 0;
  long long shared = 0;
};
constexpr long long wide_given(int columns) {
  return 4LL * columns / 2 * kWideRows;
}
constexpr WideCell wide_cell(const Network& n, const GatedCell& cell) {
  if (recurrent_product(n, cell) == kNoPhase) return {};
  for (int units = 16; units >= 8; units /= 2) {
    const int columns = units * formulas::gates_of(cell.cell);
    const long long shared = wide_bytes(n.size(n.hidden) + n.size(cell.before), columns) +
                             kCellWideThreads / 256 * wide_given(columns) + 24 * columns + 8 * kWideRows;
    if (n.size(cell.before) % units == 0 && shared <= kWideShared) return {units, shared};
  }
  return {};
}

// A walk over the frames of many sequences, policy/cell_walk_wide.cu: the blocks of a cluster share the
// units, and each keeps the weights of its own with all gates. A warpgroup has 16 units of 64 sequences. No
// blocks where a cluster has no room for all weights, or the output is not the state alone.
constexpr int kWideWalkThreads = 256, kWideUnits = 16;
struct WideWalk {
  int units = 0, team = 0;  // of a block; blocks of a cluster
  long long shared = 0;
  // Of a cluster at a time.
  constexpr int sequences() const { return kWideWalkThreads / 128 * kWideUnits / units * kWideRows; }
};
constexpr WideWalk wide_walk(const Network& n, const GatedCell& cell) {
  const int most_team = 16;
  if (!n.on_tensor_cores() || n.states != States::f32 || cell.adds) return {};
  if (recurrent_product(n, cell) == kNoPhase) return {};
  const int all = n.size(cell.before);
  for (int units = kWideWalkThreads / 128 * kWideUnits; units >= kWideUnits; units /= 2) {
    const long long shared = wide_bytes(all, units * formulas::gates_of(cell.cell));
    const bool fits = all % units == 0 && all / units <= most_team && shared <= kWideShared;
    if (fits) return {units, all / units, shared};
  }
  return {};
}

}  // namespace policy
}  // namespace exphil
