// The fused recurrent operators whose cell is linear in its state (common/cells.cuh), h' = decay h + input,
// and their gradient. Compiled with -D: CELL (a number of Cell) and ELEMENT (the tensors' type).
//
// Parallel in time: the threads of a channel take the segments of a tile of steps. Each finds what its
// segment does to any state, a decay and an input; from those of the segments before its own it knows the
// state that its segment begins with, and walks its steps. How time is cut depends on nothing but the step's
// number, so that a sequence has the same bits in any batch.
#include "kernels/common/cells.cuh"
#include "kernels/common/device_math.cuh"
#include "kernels/recurrent/linear_arguments.cuh"

namespace exphil {
namespace recurrent {

using device::Math;
using device::Real;
using formulas::Cell;

constexpr Cell kCell = static_cast<Cell>(CELL);
constexpr int kElement = ELEMENT, kGates = formulas::gates_of(kCell);
using Stored = typename device::StorageOf<kElement>::Type;

__device__ __forceinline__ float read(const void* from, long long at) {
  return device::widen<kElement>(static_cast<const Stored*>(from)[at]);
}
__device__ __forceinline__ void write(void* to, long long at, float value) {
  static_cast<Stored*>(to)[at] = device::narrow<kElement>(value);
}

// state -> decay state + input
struct Affine {
  float decay, input;
  __device__ __forceinline__ float operator()(float state) const { return __fmaf_rn(decay, state, input); }
};
__device__ __forceinline__ Affine then(Affine first, Affine second) {
  return {__fmul_rn(second.decay, first.decay), second(first.input)};
}

__device__ __forceinline__ Affine step_of(const Real (&x)[kGates]) {
  const formulas::LinearStep<Real> step = formulas::linear_step<kCell, Math>(x);
  return {step.decay.v, step.input.v};
}

// This thread's channel of a sequence, and its segment in each tile.
struct Place {
  int lane, segment;
  long long sequence, channel, row, column;  // row: of the sequence's first step; column: of {batch, hidden}
  bool valid;

  __device__ __forceinline__ explicit Place(const LinearArguments& args) {
    lane = static_cast<int>(threadIdx.x) % kChannels, segment = static_cast<int>(threadIdx.x) / kChannels;
    sequence = static_cast<long long>(blockIdx.x) / args.groups;
    channel = static_cast<long long>(blockIdx.x) % args.groups * kChannels + lane;
    row = sequence * args.seq, column = sequence * args.hidden + channel;
    valid = channel < args.hidden;
  }
  // Of step t in {batch, seq, hidden}.
  __device__ __forceinline__ long long at(const LinearArguments& args, long long t) const {
    return (row + t) * args.hidden + channel;
  }
  __device__ __forceinline__ bool has(const LinearArguments& args, long long t) const {
    return valid && t < args.seq;
  }
};

// What every segment of a tile does, from the one at 0 on or from the last: the state before this thread's
// segment, and the one behind all of them in `state`.
struct Segments {
  Affine of[kSegments][kChannels];

  __device__ __forceinline__ float meet(const Place& place, Affine own, bool backward, float* state) {
    __syncthreads();  // the tile before has been read
    of[place.segment][place.lane] = own;
    __syncthreads();
    float mine = 0.0f, h = *state;
#pragma unroll
    for (int i = 0; i < kSegments; ++i) {
      const int segment = backward ? kSegments - 1 - i : i;
      if (segment == place.segment) mine = h;
      h = of[segment][place.lane](h);
    }
    *state = h;
    return mine;
  }
};

__device__ __forceinline__ void read_gates(const LinearArguments& args, const Place& place, long long t,
                                           Real (&x)[kGates]) {
#pragma unroll
  for (int gate = 0; gate < kGates; ++gate) x[gate] = {read(args.x[gate], place.at(args, t))};
}

}  // namespace recurrent
}  // namespace exphil

using namespace exphil::recurrent;

// grid: a block for each group of channels of each sequence.
extern "C" __global__ void __launch_bounds__(kLinearThreads) recurrent_linear(const LinearArguments args) {
  __shared__ Segments segments;
  const Place place(args);
  float state = place.valid && args.h0 != nullptr ? read(args.h0, place.column) : 0.0f;
  for (long long tile = 0; tile < args.seq; tile += kTile) {
    const long long first = tile + place.segment * kSteps;
    Affine steps[kSteps], own = {1.0f, 0.0f};
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      steps[k] = {1.0f, 0.0f};
      if (place.has(args, first + k)) {
        Real x[kGates];
        read_gates(args, place, first + k, x);
        steps[k] = step_of(x);
      }
      own = then(own, steps[k]);
    }
    float h = segments.meet(place, own, false, &state);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      h = steps[k](h);
      if (!place.has(args, first + k)) continue;
      if (args.h != nullptr) write(args.h, place.at(args, first + k), h);
      if (args.states != nullptr) args.states[place.at(args, first + k)] = h;
    }
  }
  if (place.valid && place.segment == 0 && args.final_h != nullptr) write(args.final_h, place.column, state);
}

// The gradient of the state before step t is decay_t (the gradient of the state after it + dh_t): the same
// walk from the last step to the first.
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    recurrent_linear_back(const LinearArguments args) {
  __shared__ Segments segments;
  const Place place(args);
  const float h0 = place.valid && args.h0 != nullptr ? read(args.h0, place.column) : 0.0f;
  float carried = place.valid && args.d_final != nullptr ? read(args.d_final, place.column) : 0.0f;
  for (long long tile = (args.seq - 1) / kTile * kTile; args.seq > 0 && tile >= 0; tile -= kTile) {
    const long long first = tile + place.segment * kSteps;
    Real x[kSteps][kGates];
    float dh[kSteps];
    Affine own = {1.0f, 0.0f};
#pragma unroll
    for (int k = kSteps - 1; k >= 0; --k) {
      dh[k] = 0.0f;
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) x[k][gate] = {0.0f};
      if (!place.has(args, first + k)) continue;
      read_gates(args, place, first + k, x[k]);
      dh[k] = read(args.dh, place.at(args, first + k));
      const float decay = step_of(x[k]).decay;
      own = then(own, {decay, __fmul_rn(decay, dh[k])});
    }
    float d = segments.meet(place, own, true, &carried);
#pragma unroll
    for (int k = kSteps - 1; k >= 0; --k) {
      const long long t = first + k;
      if (!place.has(args, t)) continue;
      const Real before = {t == 0 ? h0 : args.given_states[place.at(args, t - 1)]};
      Real d_state = {__fadd_rn(d, dh[k])}, d_x[kGates];
      exphil::formulas::cell_gradient<kCell, Math>(x[k], x[k], &before, &d_state, d_x, d_x);
      d = d_state.v;
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        if (args.d_x[gate] != nullptr) write(args.d_x[gate], place.at(args, t), d_x[gate].v);
      }
    }
  }
  if (place.valid && place.segment == 0 && args.d_h0 != nullptr) write(args.d_h0, place.column, carried);
}
