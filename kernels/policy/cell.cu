// A gated recurrence over many rows: GRU, LSTM, minGRU and minLSTM (common/cells.cuh). A thread for each
// column of the output; a batch of agents is sequences of one frame. Compiled with the network and -D: CELL,
// its index.
//
// A cell without a recall walks the frames of its sequences in one launch. So does one that recalls its state
// where the device has clusters (policy/cell_walk.cu). Elsewhere, and in a batch of agents, that one has a
// launch for each frame, after the product that makes h: policy_cell_recall puts the states into `carry`,
// from which that product reads, and policy_cell_frame advances them there. All do the same operations
// on a unit, so that a sequence gives the bits of its steps.
#include "kernels/policy/cell.cuh"

namespace exphil {
namespace policy {

constexpr bool kRecurrent = formulas::recurrent(kIt.cell);

// A unit's sums: x of row `row`, h of row `h_row`.
struct Gates {
  Real x[kGates], h[kGates];

  __device__ __forceinline__ Gates(const CellArguments& args, long long row, long long h_row, int unit) {
    load_x(args, row, unit, x);
    for_each_number<0, kGates>([&](auto gate) {
      constexpr int kGate = decltype(gate)::value;
      h[kGate] = {0.0f};
      if constexpr (kRecurrent) {
        constexpr RowPlace kH = row_place(kNetwork, kIt.h[kGate]);
        h[kGate] = {args.h[kGate][h_row * kH.stride + kH.at + unit]};
      }
    });
  }
};

__device__ __forceinline__ float advance(const Gates& gates, Real (&states)[kStates]) {
  return formulas::advance_cell<kIt.cell, Math>(gates.x, gates.h, states).v;
}

// Writes a unit's output after a frame.
__device__ __forceinline__ void put(const CellArguments& args, long long row, int unit, float value) {
  float* const out = out_place(args, row, unit);
  *out = output(kIt.adds ? *out : 0.0f, value);
}

// This thread's sequence, and its column.
struct CellPlace {
  long long sequence;
  int column;
  __device__ __forceinline__ explicit CellPlace(int columns) {
    const long long i = static_cast<long long>(blockIdx.x) * kRowThreads + threadIdx.x;
    sequence = i / columns, column = static_cast<int>(i % columns);
  }
};

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// grid: a thread for each sequence and state value.
extern "C" __global__ void __launch_bounds__(kRowThreads) policy_cell_recall(const CellArguments args) {
  follow_launch_before();
  const CellPlace place(kState);
  if (place.sequence >= args.sequences) return;
  const StatePlace state = layer_state(args, place.sequence);
  args.carry[place.sequence * kState + place.column] = first_state(args, state, place.column);
}

// Frame args.step of each sequence. grid: a thread for each sequence and column.
extern "C" __global__ void __launch_bounds__(kRowThreads) policy_cell_frame(const CellArguments args) {
  follow_launch_before();
  const CellPlace place(kColumns);
  if (place.sequence >= args.sequences) return;
  const long long row = place.sequence * args.seq + args.step;
  const int unit = place.column;
  if (unit >= kUnits) return put_zero(args, row, unit);
  const Gates gates(args, row, place.sequence, unit);
  float* const carry = args.carry + place.sequence * kState + unit;
  Real states[kStates];
#pragma unroll
  for (int s = 0; s < kStates; ++s) states[s] = {carry[s * kUnits]};
  put(args, row, unit, advance(gates, states));
#pragma unroll
  for (int s = 0; s < kStates; ++s) carry[s * kUnits] = states[s].v;
  if (args.step + 1 < args.seq) return;
  const StatePlace state = layer_state(args, place.sequence);
  if (state.to == nullptr) return;
#pragma unroll
  for (int s = 0; s < kStates; ++s) state.to[kIt.state_at + s * kUnits + unit] = states[s].v;
}

// All frames of each sequence, with the states in registers. grid: a thread for each sequence and column.
extern "C" __global__ void __launch_bounds__(kRowThreads) policy_cell_time(const CellArguments args) {
  follow_launch_before();
  const CellPlace place(kColumns);
  if (place.sequence >= args.sequences) return;
  const long long first = place.sequence * args.seq;
  const int unit = place.column;
  if (unit >= kUnits) {
    for (int step = 0; step < args.seq; ++step) put_zero(args, first + step, unit);
    return;
  }
  const StatePlace state = layer_state(args, place.sequence);
  Real states[kStates];
#pragma unroll
  for (int s = 0; s < kStates; ++s) states[s] = {first_state(args, state, s * kUnits + unit)};
#pragma unroll 4
  for (int step = 0; step < args.seq; ++step) {
    const Gates gates(args, first + step, first + step, unit);
    put(args, first + step, unit, advance(gates, states));
  }
  if (state.to == nullptr) return;
#pragma unroll
  for (int s = 0; s < kStates; ++s) state.to[kIt.state_at + s * kUnits + unit] = states[s].v;
}
