// What the kernels of a gated cell over many rows read and write: policy/cell.cu and cell_walk.cu. Compiled
// with the network and -D: CELL, its index.
#pragma once

#include "kernels/policy/rows.cuh"

namespace exphil {
namespace policy {

constexpr GatedCell kIt = kNetwork.cells[CELL];
constexpr int kGates = formulas::gates_of(kIt.cell), kStates = formulas::states_of(kIt.cell);
constexpr int kUnits = size_of(kIt.x[0]), kState = kStates * kUnits;
constexpr int kColumns = size_of(kIt.out);  // those beyond the units are zeros
constexpr RowPlace kOut = row_place(kNetwork, kIt.out);

// A unit's sums of the input.
__device__ __forceinline__ void load_x(const CellArguments& args, long long row, int unit,
                                       Real (&x)[kGates]) {
  for_each_number<0, kGates>([&](auto gate) {
    constexpr int kGate = decltype(gate)::value;
    constexpr RowPlace kX = row_place(kNetwork, kIt.x[kGate]);
    x[kGate] = {args.x[kGate][row * kX.stride + kX.at + unit]};
  });
}

// Of an agent's states before its first frame, value `at`.
__device__ __forceinline__ float first_state(const CellArguments& args, const StatePlace& state, int at) {
  if (state.from != nullptr) return state.from[kIt.state_at + at];
  return args.initial == nullptr ? 0.0f : args.initial[args.state_offset + kIt.state_at + at];
}

// The place of a unit's output, and what it gets: `old` is there before.
__device__ __forceinline__ float* out_place(const CellArguments& args, long long row, int unit) {
  return args.out + row * kOut.stride + kOut.at + unit;
}
__device__ __forceinline__ float output(float old, float value) {
  return kIt.adds ? __fadd_rn(old, value) : value;
}

// Zeros in the columns of a frame beyond the units, which a cell that replaces its output has to write.
__device__ __forceinline__ void put_zero(const CellArguments& args, long long row, int column) {
  if constexpr (!kIt.adds) *out_place(args, row, column) = 0.0f;
}

// The same of all frames, by the whole grid.
__device__ __forceinline__ void put_zeros(const CellArguments& args) {
  constexpr int kBeyond = kColumns - kUnits;
  if constexpr (kBeyond > 0) {
    const long long all = static_cast<long long>(args.sequences) * args.seq * kBeyond;
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += step) {
      put_zero(args, i / kBeyond, kUnits + static_cast<int>(i % kBeyond));
    }
  }
}

}  // namespace policy
}  // namespace exphil
