// Which networks policy/batch_frame.cu computes, and the shape of its launch. Compiled by the host compiler
// and by NVRTC.
#pragma once

#include "kernels/policy/cell_batch_layout.cuh"

namespace exphil {
namespace policy {

constexpr int kFrameUnits = 32;  // of a block: a lane of a warp for each

// Of a block, which read frames and places while the others compute: a group that can give registers.
constexpr int kReadingWarps = 4;

// Words from the flag of one tile of frames to the next one's, which another thread of the host may write.
constexpr int kArrivedWords = 8;

// The first row of tile `tile` of a batch. Tiles have as many rows, or the first one `spread` more than the
// last one and those between in equal steps: the host copies the frames of one after another.
constexpr long long first_of_tile(long long rows, int tiles, int spread, int tile) {
  if (tiles < 2) return tile * rows;
  const long long steps = 2LL * tiles * (tiles - 1);
  return (2LL * (tiles - 1) * tile * rows + 1LL * tiles * spread * tile * (tiles - tile)) / steps;
}

// The one product after the layers, which then is in the same launch. kNoPhase: there are others.
constexpr int output_product(const Network& n) {
  if (n.output.count != 1 || n.output.phases[0].kind != Kind::product) return kNoPhase;
  const int index = n.output.phases[0].index;
  const Product& product = n.products[index];
  const bool plain = product.in == n.hidden && !product.adds && !product.is_short && !product.diagonal &&
                     product.out[0].vector == n.outs;
  return plain ? index : kNoPhase;
}

// A cluster of `team` blocks has a tile of up to `rows` agents, `chunk` of them at a time, and each block
// kFrameUnits units and, where they are in the launch, some of the outputs. A warp has a segment of a
// product's inner dimension, and holds its weights in registers.
struct FrameShape {
  int team = 0, rows = 0, chunk = 0;  // no blocks: a network without it
  int warps = 0;                      // of a block that compute, a multiple of kReadingWarps
  int outputs = 0, outs = 0;          // columns of the output, and of a block; 0: not in the launch
  long long shared = 0;               // bytes

  constexpr int threads() const { return 32 * (warps + kReadingWarps); }
};
// The values of a row in shared memory: rows begin at different banks.
constexpr int frame_stride(const Network& n, const GatedCell& cell) {
  return most(n.size(n.hidden), n.size(cell.before)) + 4;
}
constexpr FrameShape frame_shape(const Network& n, int cell, int rows, int chunk) {
  constexpr int kMostTeam = 16;
  const GatedCell& it = n.cells[cell];
  const CellProducts products = cell_products(n, it);
  if (products.x == kNoPhase || n.in_rows_alone() || n.input.count > 0 || n.frame != n.hidden) return {};
  const int output = output_product(n), units = n.size(it.before), team = units / kFrameUnits,
            gates = formulas::gates_of(it.cell);
  // With four gates the kernel spills registers, and an LSTM's batches took longer (bench/results/gated.md).
  if (gates > 3) return {};
  if (units % kFrameUnits != 0 || team < 2 || team > kMostTeam) return {};
  const int stride = frame_stride(n, it), segments = stride / kSegment;
  FrameShape shape;
  shape.team = team, shape.rows = rows, shape.chunk = chunk;
  // Their threads have 32 registers of weights for each gate.
  shape.warps = round_up(least(segments, 12), kReadingWarps);
  if (output != kNoPhase) shape.outputs = n.rows(n.products[output]);
  shape.outs = divide_up(shape.outputs, team);
  if (shape.outs > gates * kFrameUnits) return {};
  shape.shared = 4LL * rows * stride + 4LL * segments * chunk * gates * kFrameUnits +
                 4LL * kFrameUnits * (rows + chunk * (gates + formulas::states_of(it.cell))) + 8 * rows +
                 round_up(most(1, n.weight_bytes() * n.size(n.hidden) * shape.outs), 16) + 16 * rows +
                 round_up(most(1, 4 * divide_up(rows, team) * shape.outputs), 16) +
                 round_up(16 * divide_up(rows, chunk) + 8 + 4, 16);
  // A row of the output's sums is in the place of one of a layer's.
  if (segments * rows * shape.outs > segments * chunk * gates * kFrameUnits) return {};
  return shape;
}

}  // namespace policy
}  // namespace exphil
