// The shared memory and the tiles of policy/window.cu, for the kernel and for c_src/cuda/policy/window.cpp.
#pragma once

#include "kernels/policy/layout.cuh"

namespace exphil {
namespace policy {

constexpr int kWindowThreads = kFewThreads;
// Products of up to this many rows take tiles of one row, so that more blocks share them.
constexpr int kLoneRows = 4;

// Channels of a tile of the state update: at least a warp of lanes, and few, so that many blocks share them.
constexpr int window_channels(const Dims& dims) {
  return most(4, 32 / dims.lanes());
}

// The state update's tile of time for these channels.
struct WindowTimeLayout {
  Part<float> bc;                              // {steps, 2 state}
  Part<float> u, dt, gate, read_out, mean_dt;  // {steps, channels} each; {steps}
  long long bytes;

  constexpr WindowTimeLayout(const Dims& dims, int steps)
      : bc(0, 2LL * steps * dims.state()),
        u(bc.end(), 1LL * steps * window_channels(dims)),
        dt(u.end(), 1LL * steps * window_channels(dims)),
        gate(dt.end(), 1LL * steps * window_channels(dims)),
        read_out(gate.end(), 1LL * steps * window_channels(dims)),
        mean_dt(read_out.end(), steps),
        bytes(round_up_bytes(mean_dt.end(), 16)) {}
};

constexpr int window_steps(const Dims& dims) {
  int steps = 64;
  while (steps > 1 && WindowTimeLayout(dims, steps).bytes > 40 * 1024) steps /= 2;
  return steps;
}

// From the convolution to dt, for one row.
struct WindowRowLayout {
  Part<float> u, parts, projection,
      dt_parts;  // {inner}, {inner segments, projection}, {projection}, {segments}
  long long bytes;

  constexpr explicit WindowRowLayout(const Dims& dims)
      : u(0, dims.inner()),
        parts(u.end(), 1LL * (dims.inner() / kSegment) * dims.projection()),
        projection(parts.end(), dims.projection()),
        dt_parts(projection.end(), dims.inner() / kSegment),
        bytes(round_up_bytes(dt_parts.end(), 16)) {}
};

// sizeof(FewTile<k, rows>) of policy/product.cuh.
constexpr long long few_tile_bytes(const Dims& dims, int k, int rows) {
  return round_up_bytes(4LL * rows * (2 * k + norm_values(dims)), 16);
}

constexpr long long greater(long long left, long long right) {
  return left > right ? left : right;
}

// 0 where the products of this policy do not fit product_few.
constexpr long long window_shared_bytes(const Dims& dims) {
  const int depths[] = {dims.input(), dims.model(), dims.inner(), dims.head_depth()};
  long long bytes = greater(WindowRowLayout(dims).bytes, WindowTimeLayout(dims, window_steps(dims)).bytes);
  for (const int depth : depths) {
    if (few_rows(depth) == 0) return 0;
    bytes = greater(bytes, few_tile_bytes(dims, depth, few_rows(depth)));
  }
  return bytes;
}

}  // namespace policy
}  // namespace exphil
