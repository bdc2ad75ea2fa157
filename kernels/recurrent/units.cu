// A gated cell without a product of its state (minGRU, minLSTM: common/cells.cuh) over whole sequences, and
// its gradient: a thread walks one unit of a sequence and reads some frames ahead. Compiled with -D CELL;
// sizes are arguments. Launched by c_src/cuda/recurrent/walk.cpp.
#include "kernels/common/device_math.cuh"
#include "kernels/common/launches.cuh"
#include "kernels/recurrent/arguments.cuh"

namespace exphil {
namespace recurrent {
namespace {

using device::Real;
using formulas::Cell;

constexpr Cell kCell = static_cast<Cell>(CELL);
constexpr int kGates = formulas::gates_of(kCell);
static_assert(!formulas::recurrent(kCell) && formulas::states_of(kCell) == 1,
              "its states stay in its thread");

// This thread's unit of a sequence.
struct Place {
  long long sequence;
  int unit;
  __device__ __forceinline__ explicit Place(int units) {
    const long long i = static_cast<long long>(blockIdx.x) * kUnitThreads + threadIdx.x;
    sequence = i / units, unit = static_cast<int>(i % units);
  }
};

__device__ __forceinline__ void load(const float* from, long long at, Real* to) {
  to->v = from == nullptr ? 0.0f : from[at];
}
__device__ __forceinline__ void store(float* to, long long at, float value) {
  if (to != nullptr) to[at] = value;
}
__device__ __forceinline__ void load(const ConstRows& states, const Place& place, Real* to) {
  load(states.at, place.sequence * states.row + place.unit, to);
}
__device__ __forceinline__ void store(const Rows& states, const Place& place, float value) {
  store(states.at, place.sequence * states.row + place.unit, value);
}

}  // namespace
}  // namespace recurrent
}  // namespace exphil

using namespace exphil::recurrent;

extern "C" __global__ void __launch_bounds__(kUnitThreads)
    recurrent_units(const __grid_constant__ WalkArguments a) {
  exphil::device::take_turn();
  const Place place(a.units);
  if (place.sequence >= a.sequences) return;
  Real state;
  load(a.initial[0], place, &state);
  for (long long t = 0; t < a.seq; t += kUnitFrames) {
    const long long row = place.sequence * a.seq + t;
    const int count = a.seq - t < kUnitFrames ? static_cast<int>(a.seq - t) : kUnitFrames;
    Real x[kUnitFrames][kGates];
#pragma unroll
    for (int i = 0; i < kUnitFrames; ++i) {
      for (int g = 0; i < count && g < kGates; ++g)
        load(a.x[g], (row + i) * a.sums_row + place.unit, &x[i][g]);
    }
#pragma unroll
    for (int i = 0; i < kUnitFrames; ++i) {
      if (i >= count) break;
      const long long at = (row + i) * a.units + place.unit;
      store(a.before[0], at, state.v);
      exphil::formulas::advance_cell<kCell, exphil::device::Math>(x[i], static_cast<const Real*>(nullptr),
                                                                  &state);
      store(a.out, at, state.v);
    }
  }
  store(a.final[0], place, state.v);
}

extern "C" __global__ void __launch_bounds__(kUnitThreads)
    recurrent_units_back(const __grid_constant__ WalkBackArguments a) {
  const Place place(a.units);
  if (place.sequence >= a.sequences) return;
  Real d;  // of the state after the frame
  load(a.d_final[0], place, &d);
  for (long long end = a.seq; end > 0; end -= kUnitFrames) {
    const long long last = place.sequence * a.seq + end - 1;
    const int count = end < kUnitFrames ? static_cast<int>(end) : kUnitFrames;
    Real x[kUnitFrames][kGates], before[kUnitFrames], d_out[kUnitFrames];
#pragma unroll
    for (int i = 0; i < kUnitFrames; ++i) {
      if (i >= count) break;
      const long long at = (last - i) * a.units + place.unit;
      load(a.before[0], at, &before[i]);
      load(a.d_out, at, &d_out[i]);
#pragma unroll
      for (int g = 0; g < kGates; ++g) load(a.x[g], (last - i) * a.sums_row + place.unit, &x[i][g]);
    }
#pragma unroll
    for (int i = 0; i < kUnitFrames; ++i) {
      if (i >= count) break;
      Real d_x[kGates];
      d = d + d_out[i];
      exphil::formulas::cell_gradient<kCell, exphil::device::Math>(
          x[i], static_cast<const Real*>(nullptr), &before[i], &d, d_x, static_cast<Real*>(nullptr));
#pragma unroll
      for (int g = 0; g < kGates; ++g) store(a.d_x[g], (last - i) * a.sums_row + place.unit, d_x[g].v);
    }
  }
  store(a.d_initial[0], place, d.v);
}
