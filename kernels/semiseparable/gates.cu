// The matrix products of the AR-SSM layer (core/semiseparable/weights.hpp), each with a fused epilogue: relu,
// the gates, gating of u and v, and the layer's output with its convolution. -D defines from
// c_src/cuda/semiseparable/layer.cpp: LEFT and FINISH (numbers of semiseparable/arguments.cuh).
//
// A block of 256 threads computes a 64 x 64 tile, 4 x 4 sums per thread, with 16 steps of depth in shared
// memory and the next 16 being loaded into registers. Every sum is accumulated over depth in order by fma, so
// a row's result does not depend on the rows around it. f32: the layer's products take little time compared
// with the copies of its tensors.
#include "kernels/semiseparable/arguments.cuh"

namespace exphil {
namespace semiseparable {

constexpr Left kLeft = static_cast<Left>(LEFT);
constexpr Finish kFinish = static_cast<Finish>(FINISH);
constexpr int kEach = kTile * kDepthTile / kThreads;  // elements of a tile that a thread loads: 4

// A row of padding avoids bank conflicts of the transposing stores and keeps the 16-byte loads aligned.
struct Tiles {
  float left[kDepthTile][kTile + 4];
  float right[kDepthTile][kTile + 4];
};

__device__ __forceinline__ float left_at(const ProductArguments& p, long long index) {
  if constexpr (kLeft == Left::plain) return p.x[index];
  float k = p.x[index];
  if (p.k_reverse != nullptr) k = __fadd_rn(k, p.k_reverse[index]);
  return __fmul_rn(k, p.v[index]);
}

// Thread i loads depth i % 16 of rows i / 16, i / 16 + 16, ...: half a warp reads 64 consecutive bytes.
__device__ __forceinline__ void fetch(const ProductArguments& p, long long first_row, int first_out,
                                      int depth, float (&left)[kEach], float (&right)[kEach]) {
  const int k = depth + static_cast<int>(threadIdx.x) % kDepthTile;
  const int line = static_cast<int>(threadIdx.x) / kDepthTile;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const long long row = first_row + line + i * (kThreads / kDepthTile);
    const int out = first_out + line + i * (kThreads / kDepthTile);
    left[i] = k < p.depth && row < p.rows ? left_at(p, row * p.depth + k) : 0.0f;
    right[i] = k < p.depth && out < p.outs ? p.weights[static_cast<long long>(out) * p.depth + k] : 0.0f;
  }
}

__device__ __forceinline__ void keep(Tiles& tiles, const float (&left)[kEach], const float (&right)[kEach]) {
  const int k = static_cast<int>(threadIdx.x) % kDepthTile, line = static_cast<int>(threadIdx.x) / kDepthTile;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    tiles.left[k][line + i * (kThreads / kDepthTile)] = left[i];
    tiles.right[k][line + i * (kThreads / kDepthTile)] = right[i];
  }
}

__device__ __forceinline__ void multiply(const Tiles& tiles, int row, int column, float (&sums)[4][4]) {
#pragma unroll
  for (int k = 0; k < kDepthTile; ++k) {
    const float4 l = *reinterpret_cast<const float4*>(&tiles.left[k][row]);
    const float4 r = *reinterpret_cast<const float4*>(&tiles.right[k][column]);
    const float left[4] = {l.x, l.y, l.z, l.w}, right[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] = __fmaf_rn(left[i], right[j], sums[i][j]);
    }
  }
}

__device__ __forceinline__ float finished(const ProductArguments& p, float sum, long long row, int out) {
  const float value = p.bias == nullptr ? sum : __fadd_rn(sum, p.bias[out]);
  const long long index = row * p.outs + out;
  if constexpr (kFinish == Finish::relu) return value < 0.0f ? 0.0f : value;
  if constexpr (kFinish == Finish::gate) return 1.0f / (1.0f + expf(-value));
  if constexpr (kFinish == Finish::gated) return __fmul_rn(value, p.gates[index]);
  const float* taps = p.taps + 3 * out;
  const long long t = row % p.seq;
  float y = __fmaf_rn(taps[1], p.input[index], value);
  if (t > 0) y = __fmaf_rn(taps[0], p.input[index - p.outs], y);
  if (t + 1 < p.seq) y = __fmaf_rn(taps[2], p.input[index + p.outs], y);
  return y;
}

}  // namespace semiseparable
}  // namespace exphil

using namespace exphil::semiseparable;

// grid.x: row tiles times out tiles, the out tiles of a row tile next to each other.
extern "C" __global__ void __launch_bounds__(kThreads) semiseparable_product(ProductArguments p) {
  __shared__ __align__(16) Tiles tiles[2];
  const int out_tiles = (p.outs + kTile - 1) / kTile;
  const long long first_row = static_cast<long long>(blockIdx.x / out_tiles) * kTile;
  const int first_out = static_cast<int>(blockIdx.x % out_tiles) * kTile;
  const int row = static_cast<int>(threadIdx.x) / 16 * 4, column = static_cast<int>(threadIdx.x) % 16 * 4;
  float left[kEach], right[kEach], sums[4][4] = {};
  fetch(p, first_row, first_out, 0, left, right);
  keep(tiles[0], left, right);
  __syncthreads();
  int current = 0;
  for (int depth = 0; depth < p.depth; depth += kDepthTile, current ^= 1) {
    const bool more = depth + kDepthTile < p.depth;
    if (more) fetch(p, first_row, first_out, depth + kDepthTile, left, right);
    multiply(tiles[current], row, column, sums);
    if (more) keep(tiles[current ^ 1], left, right);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const long long r = first_row + row + i;
      const int out = first_out + column + j;
      if (r < p.rows && out < p.outs) p.out[r * p.outs + out] = finished(p, sums[i][j], r, out);
    }
  }
}
