// What recurrent/walk.cu and walk_back.cu have in common: a team of blocks, a block's part of the recurrent
// matrix, and the products by it. Compiled with -D: CELL, UNITS, TEAM, CLUSTER (1 where TEAM > 1), THREADS of
// a block, ROWS: sequences of a team, HELD.
//
// Every sum is in an order that UNITS alone decides, or UNITS and TEAM: a sequence has the same bits in any
// batch.
#pragma once

#include "kernels/common/cluster.cuh"
#include "kernels/common/device_math.cuh"
#include "kernels/recurrent/arguments.cuh"

namespace exphil {
namespace recurrent {

using device::Real;
using formulas::Cell;

constexpr Cell kCell = static_cast<Cell>(CELL);
constexpr int kGates = formulas::gates_of(kCell), kStates = formulas::states_of(kCell);
constexpr int kOwn = units_of_block(UNITS, TEAM);
static_assert(kOwn * (TEAM - 1) < UNITS, "every block has something to send, so that all wait for it");
// Units that a thread computes the gates of: item = thread + i THREADS is unit item % kOwn of row item /
// kOwn.
constexpr int kItems = divide_up(ROWS * kOwn, THREADS);

__device__ __forceinline__ int thread() {
  return static_cast<int>(threadIdx.x);
}
__device__ __forceinline__ int rank() {
  return static_cast<int>(blockIdx.x) % TEAM;
}

__device__ __forceinline__ void team_sync() {
#if EXPHIL_CLUSTERS
  device::cluster_sync();
#else
  __syncthreads();
#endif
}

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

  // A round: all threads say how many bytes this block will receive, send, and receive. Then each thread of
  // the block is done with what it did before.
  __device__ __forceinline__ void expect(int bytes) const {
#if EXPHIL_CLUSTERS
    if (thread() == 0) device::expect_bytes(&words_[round_ % 2], static_cast<unsigned>(bytes));
#endif
  }
  template <class Value>  // float or float4
  __device__ __forceinline__ void send(Value* place, int rank, Value value) const {
#if EXPHIL_CLUSTERS
    device::send(place, rank, value, &words_[round_ % 2]);
#else
    *place = value;
#endif
  }
  // A value of each thread, for all blocks. Threads of neighbouring items send four values at once, where
  // there are always four. Called by whole warps; `exists`: this thread has one.
  __device__ __forceinline__ void send_all(float* place, float value, bool exists) const {
    if constexpr (kOwn % 4 == 0 && UNITS % 4 == 0) {
      const int lane = thread() % 4;
      float4 four;
      four.x = __shfl_sync(0xffffffffu, value, 0, 4), four.y = __shfl_sync(0xffffffffu, value, 1, 4);
      four.z = __shfl_sync(0xffffffffu, value, 2, 4), four.w = __shfl_sync(0xffffffffu, value, 3, 4);
      if (!exists) return;
#pragma unroll
      for (int first = 0; first < TEAM; first += 4) {
        if (first + lane < TEAM) send(reinterpret_cast<float4*>(place - lane), first + lane, four);
      }
    } else {
      if (!exists) return;
#pragma unroll
      for (int other = 0; other < TEAM; ++other) send(place, other, value);
    }
  }

  __device__ __forceinline__ void receive() {
#if EXPHIL_CLUSTERS
    device::await_bytes(&words_[round_ % 2], round_ / 2 % 2);
    ++round_;
#endif
    __syncthreads();
  }

 private:
#if EXPHIL_CLUSTERS
  using Word = device::Arrivals;
#else
  using Word = float;
#endif
  Word* const words_;
  unsigned round_ = 0;
};

// One unit of one sequence, of those that a thread computes the gates of.
struct Item {
  int row, own, unit;
  long long sequence;
  bool exists;

  __device__ __forceinline__ Item(int i, long long sequences) {
    const int item = thread() + i * THREADS;
    row = item / kOwn, own = item % kOwn, unit = rank() * kOwn + own;
    sequence = static_cast<long long>(blockIdx.x / TEAM) * ROWS + row;
    exists = row < ROWS && unit < UNITS && sequence < sequences;
  }
};

__device__ __forceinline__ float load_or_zero(const ConstRows& rows, long long row, int unit) {
  return rows.at == nullptr ? 0.0f : rows.at[row * rows.row + unit];
}
__device__ __forceinline__ void store_if_wanted(const Rows& rows, long long row, int unit, float value) {
  if (rows.at != nullptr) rows.at[row * rows.row + unit] = value;
}

// Four neighbours, `step` floats apart, of which `count` exist.
__device__ __forceinline__ float4 load_quad(const float* from, long long step, int count) {
  if (count >= 4 && step == 1 && reinterpret_cast<unsigned long long>(from) % 16 == 0) {
    return __ldg(reinterpret_cast<const float4*>(from));
  }
  return make_float4(count > 0 ? __ldg(from) : 0.0f, count > 1 ? __ldg(from + step) : 0.0f,
                     count > 2 ? __ldg(from + 2 * step) : 0.0f, count > 3 ? __ldg(from + 3 * step) : 0.0f);
}

// A block's part of U: Source has a static load(weights, group, out, first) -> float4, four values of the
// depth from `first` on of output `out` of a group; zeros where there are none.
template <class Source>
class TeamProduct {
 public:
  static constexpr ProductShape kShape = Source::kShape;
  static constexpr int kSlices = kShape.slices, kOuts = kShape.outs, kQuads = kShape.quads();
  static constexpr int kPasses = kShape.passes(THREADS), kGroups = THREADS / kSlices;
  static constexpr int kTogether = HELD == kInL2 ? 2 : kQuads;  // quads
  static_assert(HELD != kInRegisters || kPasses == 1, "registers have no indices");

  // shared: room for kPasses kOuts kQuads THREADS float4, where it keeps them there.
  __device__ __forceinline__ TeamProduct(const RecurrentWeights& weights, float* shared)
      : weights_(weights), shared_(reinterpret_cast<float4*>(shared)) {
    if constexpr (HELD != kInL2) {
#pragma unroll 1
      for (int pass = 0; pass < kPasses; ++pass) hold(pass);
    }
  }

  // put(group, out, row, sum) of each sum, by one thread. vectors: {ROWS, depth}.
  template <class Put>
  __device__ __forceinline__ void run(const float* vectors, Put put) const {
#pragma unroll 1
    for (int pass = 0; pass < kPasses; ++pass) {
      float sums[kOuts * ROWS] = {};
#pragma unroll kTogether
      for (int j = 0; j < kQuads; ++j) add(pass, j, vectors, sums);
      const int of = group(pass);
      combine<kSlices / 2>(sums, 0, kOuts * ROWS, [&](int i, float sum) {
        if (of < kShape.groups) put(of, i / ROWS, i % ROWS, sum);
      });
    }
  }

 private:
  __device__ __forceinline__ static int group(int pass) {
    return pass * kGroups + thread() / kSlices;
  }
  __device__ __forceinline__ static int first(int j) {
    return 4 * (kSlices * j + thread() % kSlices);
  }
  __device__ __forceinline__ static int place(int pass, int out, int j) {
    return ((pass * kOuts + out) * kQuads + j) * THREADS + thread();
  }
  __device__ __forceinline__ void hold(int pass) {
#pragma unroll
    for (int out = 0; out < kOuts; ++out) {
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        const float4 quad = Source::load(weights_, group(pass), out, first(j));
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
    return Source::load(weights_, group(pass), out, first(j));
  }

  __device__ __forceinline__ void add(int pass, int j, const float* vectors,
                                      float (&sums)[kOuts * ROWS]) const {
    float4 weight[kOuts];
#pragma unroll
    for (int out = 0; out < kOuts; ++out) weight[out] = quad(pass, out, j);
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
      const float4 v = *reinterpret_cast<const float4*>(vectors + row * kShape.depth + first(j));
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

  // Adds what lanes that differ in the bits of kMask and below have of each sum. At each step a lane keeps
  // half of its sums and gives its partner the other half; what is left is sums [first, first + count).
  template <int kMask, int kCount, class Put>
  __device__ __forceinline__ static void combine(const float (&sums)[kCount], int begin, int count, Put put) {
    if constexpr (kMask == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (i < count) put(begin + i, sums[i]);
      }
    } else {
      constexpr int kHalf = (kCount + 1) / 2;
      const bool upper = (thread() & kMask) != 0;
      float kept[kHalf];
#pragma unroll
      for (int i = 0; i < kHalf; ++i) {
        const float low = sums[i], high = kHalf + i < kCount ? sums[kHalf + i] : 0.0f;
        const float other = __shfl_xor_sync(0xffffffffu, upper ? low : high, kMask);
        kept[i] = __fadd_rn(upper ? high : low, other);
      }
      const int left = upper ? count - kHalf : count < kHalf ? count : kHalf;
      combine<kMask / 2>(kept, begin + (upper ? kHalf : 0), left, put);
    }
  }

  const RecurrentWeights& weights_;
  float4* const shared_;
  float4 held_[HELD == kInRegisters ? kOuts : 1][HELD == kInRegisters ? kQuads : 1];
};

}  // namespace recurrent
}  // namespace exphil
