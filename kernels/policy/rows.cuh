// What the kernels over many rows have in common that are no products: policy/convolution.cu, mean.cu,
// scan.cu and others. They run over a batch of agents (a state for each row) or over time (rows of sequences
// in order). Each is compiled for one phase of the network. Launched by c_src/cuda/policy/rows_walk.cpp.
//
// A new kind of phase has a file like these, and a function in each of rows.cpp (the names of its kernels),
// rows_walk.hpp (its launches) and pack_rows.cpp (its weights).
#pragma once

#include "kernels/policy/arguments.cuh"
#include "kernels/policy/dot.cuh"
#include "kernels/policy/heads.cuh"
#include "kernels/policy/ptx.cuh"
#include "kernels/policy/row_layout.cuh"

namespace exphil {
namespace policy {

// Every kernel over many rows calls it before it reads what the launch before it wrote: the blocks of the
// next launch may begin while those of this one run (c_src/cuda/policy/rows_walk.cpp).
__device__ __forceinline__ void follow_launch_before() {
  begin_launch_after();
  await_launch_before();
}

__device__ __forceinline__ StatePlace layer_state(const RowStates& rows, long long index) {
  if (rows.states == nullptr) return {nullptr, nullptr};
  const StatePlace state = rows.states[index];
  return {state.from + rows.state_offset, state.to + rows.state_offset};
}

// Row c of a short product, activated. values: what it reads; weights: of the row, `stride` groups apart.
template <int kProduct>
__device__ __forceinline__ float short_row(const ShortMatrix& matrix, const Group* weights, int stride,
                                           const float* values, int c, float bias) {
  constexpr Product product = kNetwork.products[kProduct];
  constexpr int kRows = kNetwork.rows(product);
  const float sum = dot_short<size_of(product.in)>(weights, stride, reinterpret_cast<const float4*>(values));
  return activated<kProduct, 0>(__fadd_rn(scaled(sum, matrix.bias + kRows, c), bias));
}
template <int kProduct>
__device__ __forceinline__ float short_row(const ShortMatrix& matrix, const float* values, int c,
                                           float bias) {
  constexpr int kRows = kNetwork.rows(kNetwork.products[kProduct]);
  return short_row<kProduct>(matrix, static_cast<const Group*>(matrix.weights) + c, kRows, values, c, bias);
}

// Stores the last inputs of one channel of a convolution as the state's history. in: the array of its input.
template <int kConvolution>
__device__ __forceinline__ void keep_history(const RowStates& rows, const float* in, const StatePlace& state,
                                             int sequence, int c) {
  constexpr Convolution kIt = kNetwork.convolutions[kConvolution];
  constexpr int kHistory = kIt.taps - 1, kChannels = size_of(kIt.in);
  constexpr RowPlace kIn = row_place(kNetwork, kIt.in);
  if constexpr (kHistory > 0) {
    const float* history = state.from + kIt.state_at + c;
    float* next = state.to + kIt.state_at + c;
    float taps[kHistory];
#pragma unroll
    for (int t = 0; t < kHistory; ++t) {
      const int step = rows.seq - kHistory + t;
      const long long row = static_cast<long long>(sequence) * rows.seq + step;
      taps[t] = step >= 0 ? in[row * kIn.stride + kIn.at + c] : history[(t + rows.seq) * kChannels];
    }
#pragma unroll
    for (int t = 0; t < kHistory; ++t) next[t * kChannels] = taps[t];
  }
}

}  // namespace policy
}  // namespace exphil
