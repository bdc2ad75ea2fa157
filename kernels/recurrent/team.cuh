// What recurrent/walk.cu and walk_back.cu have in common: a team of blocks, what they send each other, and a
// block's part of the recurrent matrix. Compiled with -D: CELL, UNITS, TEAM, CLUSTER (1 where TEAM > 1),
// ROWS: sequences of a team, HELD, THREADS and GATES: those of a block that multiply, and that compute gates,
// PRODUCT_REGISTERS: of a thread that multiplies, where it takes some that the others do not need; else 0;
// MEETS: 1 where all threads wait at the barriers that some need not wait at (RecurrentTuning).
//
// Threads of their own compute the gates, so that what they load ahead and keep is not in the way of those
// that multiply, and the weights' registers not in theirs. Forward they also wait for the launch before,
// which may still run while the others load weights.
//
// Every sum is in an order that UNITS alone decides, or UNITS and TEAM: a sequence has the same bits in any
// batch.
#pragma once

#include "kernels/common/cluster.cuh"
#include "kernels/common/device_math.cuh"
#include "kernels/common/launches.cuh"
#include "kernels/recurrent/arguments.cuh"

namespace exphil {
namespace recurrent {

using device::Real;
using formulas::Cell;

constexpr Cell kCell = static_cast<Cell>(CELL);
constexpr int kGates = formulas::gates_of(kCell), kStates = formulas::states_of(kCell);
constexpr int kOwn = units_of_block(UNITS, TEAM), kAllThreads = THREADS + GATES;
static_assert(kOwn * (TEAM - 1) < UNITS, "every block has something to send, so that all wait for it");
// Units that a thread computes the gates of.
constexpr int kItems = divide_up(ROWS * kOwn, GATES);

__device__ __forceinline__ int thread() {
  return static_cast<int>(threadIdx.x);
}
__device__ __forceinline__ int gate_thread() {
  return thread() - THREADS;
}
__device__ __forceinline__ int rank() {
  return static_cast<int>(blockIdx.x) % TEAM;
}
__device__ __forceinline__ long long first_sequence() {
  return static_cast<long long>(blockIdx.x / TEAM) * ROWS;
}

__device__ __forceinline__ void team_sync() {
#if EXPHIL_CLUSTERS
  device::cluster_sync();
#else
  __syncthreads();
#endif
}

// What the threads of a block do: `multiply` or `compute_gates`.
template <class Multiply, class ComputeGates>
__device__ __forceinline__ void share_work(Multiply multiply, ComputeGates compute_gates) {
  if (thread() < THREADS) {
#if EXPHIL_CLUSTERS && PRODUCT_REGISTERS > 0
    device::take_registers<PRODUCT_REGISTERS>();
#endif
    multiply();
  } else {
#if EXPHIL_CLUSTERS && PRODUCT_REGISTERS > 0
    device::give_registers<kGateRegisters>();
#endif
    compute_gates();
  }
}

// Threads of one sort leave values to those of the other: the former give() them and go on, the latter take()
// them. Called by whole warps.
enum class Hand : int { sums = 1, mail = 2 };
__device__ __forceinline__ void give(Hand hand) {
#if MEETS
  (void)hand, __syncthreads();
#else
  __syncwarp();  // a warp whose lanes come apart would count several times
  device::barrier_arrive(static_cast<int>(hand), kAllThreads);
#endif
}
__device__ __forceinline__ void take(Hand hand) {
#if MEETS
  (void)hand, __syncthreads();
#else
  __syncwarp();
  device::barrier(static_cast<int>(hand), kAllThreads);
#endif
}

// One unit of one sequence, of those that a thread computes the gates of: number i of thread `of`.
struct Item {
  int row, own, unit;
  long long sequence;
  bool exists;

  __device__ __forceinline__ Item(int i, long long sequences, int of = gate_thread()) {
    const int item = of + i * GATES;
    row = item / kOwn, own = item % kOwn, unit = rank() * kOwn + own;
    sequence = first_sequence() + row;
    exists = row < ROWS && unit < UNITS && sequence < sequences;
  }
};

// What the blocks of the team store into each other's shared memory, round after round. The receiver counts
// the bytes; a barrier of the cluster would also wait for all that was written to memory meanwhile. Of a
// place two rounds may be under way: who receives round r has all blocks' parts of it, and each had read
// round r - 2 before it sent.
class TeamMail {
 public:
  // shared: kMailFloats of them. team_sync() before anything is sent.
  __device__ __forceinline__ explicit TeamMail(float* shared) : words_(reinterpret_cast<Word*>(shared)) {
#if EXPHIL_CLUSTERS
    if (thread() > 0) return;
    device::begin_arrivals(&words_[0]), device::begin_arrivals(&words_[1]);
    device::publish_arrivals();
#endif
  }

  // A round: one thread that computes gates says how many bytes this block will receive, before or after the
  // first of them. All threads of one sort send, and say in the end that they have; those of the other sort
  // receive.
  __device__ __forceinline__ void expect(long long round, int bytes) const {
#if EXPHIL_CLUSTERS
    if (gate_thread() == 0) device::expect_bytes(word(round), static_cast<unsigned>(bytes));
#endif
  }
  template <class Value>  // float or float4
  __device__ __forceinline__ void send(long long round, Value* place, int rank, Value value) const {
#if EXPHIL_CLUSTERS
    device::send(place, rank, value, word(round));
#else
    *place = value;
#endif
  }
  __device__ __forceinline__ void sent() const {
#if !EXPHIL_CLUSTERS
    give(Hand::mail);
#endif
  }
  __device__ __forceinline__ void receive(long long round) const {
#if EXPHIL_CLUSTERS
    device::await_bytes(word(round), static_cast<unsigned>(round / 2 % 2));
#else
    take(Hand::mail);
#endif
  }

 private:
#if EXPHIL_CLUSTERS
  using Word = device::Arrivals;
  __device__ __forceinline__ Word* word(long long round) const {
    return &words_[round % 2];
  }
#else
  using Word = float;
#endif
  Word* const words_;
};

// Where a frame has a unit's values: in its sums, and in its other rows.
struct FramePlace {
  long long sums, states;

  template <class Arguments>
  __device__ __forceinline__ FramePlace(const Arguments& a, const Item& item, long long t) {
    const long long row = item.sequence * a.seq + t;
    sums = row * a.sums_row + item.unit, states = row * UNITS + item.unit;
  }
};

__device__ __forceinline__ float load_or_zero(const float* from, long long at) {
  return from == nullptr ? 0.0f : from[at];
}
__device__ __forceinline__ void store_if_wanted(float* to, long long at, float value) {
  if (to != nullptr) to[at] = value;
}
__device__ __forceinline__ float load_or_zero(const ConstRows& states, const Item& item) {
  return load_or_zero(states.at, item.sequence * states.row + item.unit);
}
__device__ __forceinline__ void store_if_wanted(const Rows& states, const Item& item, float value) {
  store_if_wanted(states.at, item.sequence * states.row + item.unit, value);
}

// Four neighbours, `step` floats apart, of which `count` exist.
__device__ __forceinline__ float4 load_quad(const float* from, long long step, int count) {
  if (count >= 4 && step == 1 && reinterpret_cast<unsigned long long>(from) % 16 == 0) {
    return __ldg(reinterpret_cast<const float4*>(from));
  }
  return make_float4(count > 0 ? __ldg(from) : 0.0f, count > 1 ? __ldg(from + step) : 0.0f,
                     count > 2 ? __ldg(from + 2 * step) : 0.0f, count > 3 ? __ldg(from + 3 * step) : 0.0f);
}

// A block's part of U, of which a thread has `outs` times `quads` float4 for each of `passes` tasks. Source
// has its kShape and a static load(weights, task, out, j) -> float4, zeros where there are none.
template <class Source>
class HeldWeights {
 public:
  static constexpr ProductShape kShape = Source::kShape;
  static constexpr int kOuts = kShape.outs, kQuads = kShape.quads(), kPasses = kShape.passes(THREADS);
  static constexpr int kTogether = HELD == kInL2 ? 2 : kQuads;  // quads
  static_assert(HELD != kInRegisters || kPasses == 1, "registers have no indices");

  // shared: room for kPasses kOuts kQuads THREADS float4, where it keeps them there.
  __device__ __forceinline__ HeldWeights(const RecurrentWeights& weights, float* shared)
      : weights_(weights), shared_(reinterpret_cast<float4*>(shared)) {
    if constexpr (HELD != kInL2) {
#pragma unroll 1
      for (int pass = 0; pass < kPasses; ++pass) hold(pass);
    }
  }

  __device__ __forceinline__ static int task(int pass) {
    return pass * THREADS + thread();
  }

  // sums: {outs, ROWS}. values(row, j): the four values of a row that quads j are multiplied by.
  template <class Values>
  __device__ __forceinline__ void add(int pass, float (&sums)[kOuts * ROWS], Values values) const {
#pragma unroll kTogether
    for (int j = 0; j < kQuads; ++j) {
      float4 weight[kOuts];
#pragma unroll
      for (int out = 0; out < kOuts; ++out) weight[out] = quad(pass, out, j);
#pragma unroll
      for (int row = 0; row < ROWS; ++row) {
        const float4 v = *values(row, j);
#pragma unroll
        for (int out = 0; out < kOuts; ++out) {
          float& sum = sums[out * ROWS + row];
          sum = __fmaf_rn(weight[out].x, v.x, sum);
          sum = __fmaf_rn(weight[out].y, v.y, sum);
          sum = __fmaf_rn(weight[out].z, v.z, sum);
          sum = __fmaf_rn(weight[out].w, v.w, sum);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ static int place(int pass, int out, int j) {
    return ((pass * kOuts + out) * kQuads + j) * THREADS + thread();
  }
  __device__ __forceinline__ void hold(int pass) {
#pragma unroll
    for (int out = 0; out < kOuts; ++out) {
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        const float4 quad = Source::load(weights_, task(pass), out, j);
        if constexpr (HELD == kInRegisters) {
          held_[out][j] = quad;
        } else {
          shared_[place(pass, out, j)] = quad;
        }
      }
    }
  }
  __device__ __forceinline__ float4 quad(int pass, int out, int j) const {
    if constexpr (HELD == kInRegisters) return held_[out][j];
    if constexpr (HELD == kInShared) return shared_[place(pass, out, j)];
    return Source::load(weights_, task(pass), out, j);
  }

  const RecurrentWeights& weights_;
  float4* const shared_;
  float4 held_[HELD == kInRegisters ? kOuts : 1][HELD == kInRegisters ? kQuads : 1];
};

}  // namespace recurrent
}  // namespace exphil
