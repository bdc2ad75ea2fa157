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

// What a frame's row has for a unit: the sums x, and the output that the new one is added to; and the sums h
// of row `h_row`.
struct Inputs {
  Real x[kGates], h[kGates];
  float old;

  __device__ __forceinline__ void load(const CellArguments& args, long long row, long long h_row, int unit) {
    load_x(args, row, unit, x);
    old = kIt.adds ? *out_place(args, row, unit) : 0.0f;
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

// Advances a unit by a frame and writes its output.
__device__ __forceinline__ void advance(const CellArguments& args, long long row, int unit,
                                        const Inputs& inputs, Real (&states)[kStates]) {
  const float value = formulas::advance_cell<kIt.cell, Math>(inputs.x, inputs.h, states).v;
  *out_place(args, row, unit) = output(inputs.old, value);
}

// Frames whose inputs policy_cell_time loads before it advances through them: one after another each would
// wait for the L2, because the compiler has to take what is written between for what is read.
constexpr int kAhead = kRecurrent ? 4 : 16;

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
  Inputs inputs;
  inputs.load(args, row, place.sequence, unit);
  float* const carry = args.carry + place.sequence * kState + unit;
  Real states[kStates];
#pragma unroll
  for (int s = 0; s < kStates; ++s) states[s] = {carry[s * kUnits]};
  advance(args, row, unit, inputs, states);
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
#pragma unroll 1
  for (int begin = 0; begin < args.seq; begin += kAhead) {
    const long long row = first + begin;
    const int left = args.seq - begin;
    Inputs inputs[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i < left) inputs[i].load(args, row + i, row + i, unit);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i < left) advance(args, row + i, unit, inputs[i], states);
    }
  }
  if (state.to == nullptr) return;
#pragma unroll
  for (int s = 0; s < kStates; ++s) state.to[kIt.state_at + s * kUnits + unit] = states[s].v;
}
