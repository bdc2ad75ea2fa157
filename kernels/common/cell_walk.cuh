// All frames of sequences of a GRU or an LSTM in one launch. The sums of the inputs, W x + b, are there for
// all frames; U h, the sums of the states, are made here. A cluster holds U for the whole walk, and takes up
// to kMostSequences sequences at a time. In each frame its blocks
//   - sum up their rows of U, of the state of all units before the frame (common/cell_walk_sums.cuh);
//   - advance their own units by common/cells.cuh;
//   - send their new states to all blocks of the cluster, which wait for them.
// The states are in two buffers. A block sends frame t + 1 after it has all of frame t, which the others sent
// after they had read frame t - 1: so two are enough, and nothing else is waited for. The same holds for the
// sums of segments: the warps that add them up all send something.
//
// The walk is shared by operators. What reads and writes their memory is `It`:
//   static constexpr walk::Shape kShape
//   static constexpr bool kCounts     blocks count the bytes that arrive; otherwise a barrier of the cluster
//   Group; static float4 widen(Group) four consecutive weights of a row of U as they are stored
//   Group weights(gate, unit, k4)     those from 4 k4 on
//   float4 tensor_weights(gate, unit, k8)  or, on tensor cores, the lane's four of 16 units and 8 k
//                                     (common/tensor.cuh), from `unit` and 8 k8 on
//   Unit; Unit unit(unit)             what a thread keeps of a unit for
//   float completed(Unit, gate, sum)  U h of a gate from the sum over the stored weights: scale, bias
//   Inputs; Inputs inputs(row, unit)  of a frame, loaded ahead: has x, the gates' sums of the input
//   static constexpr bool kAwaits     they may not be there yet:
//   void await(row, unit, Inputs*)    waits for them
//   void put(row, unit, Inputs, states)       after a frame
//   float initial(sequence, at)       at: of an agent's state {states, units}, before the first frame
//   void finish(sequence, unit, states)       after the last frame
// Row t of a sequence is sequence * seq + t. Several threads ask for the inputs and states of a unit, one
// puts and finishes. No state may be written while a block still reads initial ones: finish() and put() are
// called after a barrier.
#pragma once

#include "kernels/common/cell_walk_sums.cuh"
#include "kernels/common/cluster.cuh"

namespace exphil {
namespace walk {

#if EXPHIL_CLUSTERS

using device::Real;

template <class It>
class CellWalk {
 public:
  // Loads U. shared: kShape.shared_bytes(), aligned to 16 bytes.
  __device__ __forceinline__ CellWalk(const It& it, float* shared)
      : it_(it),
        states_(device::launder_shared(shared)),
        sums_(states_ + kShape.states_bytes() / 4),
        arrivals_(reinterpret_cast<device::Arrivals*>(sums_ + kShape.sums_bytes() / 4)),
        rank_(device::launder(static_cast<int>(blockIdx.x) % kShape.team)),
        thread_(device::launder(static_cast<int>(threadIdx.x))),
        of_states_(it, reinterpret_cast<typename Sums<It>::Group*>(arrivals_ + 2), rank_, thread_) {
    if (thread_ == 0 && It::kCounts) {
      device::begin_arrivals(&arrivals_[0]), device::begin_arrivals(&arrivals_[1]);
      device::publish_arrivals();
    }
  }

  // All sequences, `together` of them at a time.
  __device__ __forceinline__ void run(long long sequences, int seq, int together) {
    const long long clusters = gridDim.x / kShape.team, cluster = blockIdx.x / kShape.team;
    for (long long first = cluster * together; first < sequences; first += clusters * together) {
      const long long left = sequences - first;
      walk(first, left < together ? static_cast<int>(left) : together, seq);
    }
  }

 private:
  static constexpr Shape kShape = It::kShape;
  static constexpr int kGates = kShape.gates(), kStates = formulas::states_of(kShape.cell);
  static constexpr int kUnits = kShape.units, kOwn = kShape.own();
  static constexpr int kThreads = kShape.threads(), kSegments = kShape.segments();
  // Of a buffer.
  static constexpr int kStateBuffer = kShape.sequences() * kShape.state_stride();
  static constexpr int kSumBuffer = kShape.sequences() * kShape.sum_stride();

  // A thread's unit of one of the sequences. Where there are more threads than units, `sharers` of them have
  // the same one, and send its state to different blocks.
  struct Place {
    int sequence, unit, sharer, sharers;
    bool mine;
    const float* sums;  // of its segments, in the first buffer
    float* four;        // its state and those of its neighbours, the same
  };
  __device__ __forceinline__ Place place(int count) const {
    const int items = count * kOwn, item = thread_ % items, sequence = item / kOwn, own = item % kOwn;
    int sharers = 1;
    while (sharers * 8 <= kShape.team && 2 * sharers * items <= kThreads) sharers *= 2;
    Place at{sequence, rank_ * kOwn + own, thread_ / items, sharers, false, nullptr, nullptr};
    at.mine = at.sharer < sharers && (kOwn * kShape.team == kUnits || at.unit < kUnits);
    at.sums = sums_ + sequence * kShape.sum_stride() + own;
    at.four = state(sequence, at.unit / 4 * 4);
    return at;
  }

  // A unit's state in the first buffer.
  __device__ __forceinline__ float* state(int sequence, int unit) const {
    return states_ + sequence * kShape.state_stride() + unit / kSegment * kSegmentStride + unit % kSegment;
  }

  __device__ __forceinline__ void advance(const Place& at, const typename It::Unit& unit,
                                          const typename It::Inputs& inputs, Real (&states)[kStates]) const {
    const float* const sums = at.sums + buffer_ * kSumBuffer;
    Real h[kGates];
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      h[gate] = {
          it_.completed(unit, gate, add_segments<kSegments>(sums + gate * kShape.gate_stride(), kOwn))};
    }
    formulas::advance_cell<kShape.cell, device::Math>(inputs.x, h, states);
  }

  // Sends a unit's state to all blocks, four neighbouring ones by one thread. Called by whole warps.
  __device__ __forceinline__ void send(const Place& at, float value) const {
    const int lane = thread_ % 32, first = lane / 4 * 4;
    float4 four;
    four.x = __shfl_sync(0xffffffffu, value, first), four.y = __shfl_sync(0xffffffffu, value, first + 1);
    four.z = __shfl_sync(0xffffffffu, value, first + 2), four.w = __shfl_sync(0xffffffffu, value, first + 3);
    if (!at.mine) return;
    auto* const to = reinterpret_cast<float4*>(at.four + (1 - buffer_) * kStateBuffer);
    for (int rank = 4 * at.sharer + lane % 4; rank < kShape.team; rank += 4 * at.sharers) {
      if constexpr (It::kCounts) {
        device::send(to, rank, four, &arrivals_[1 - buffer_]);
      } else {
        device::store_cluster(to, rank, four);
      }
    }
  }
  // Waits for the states of all units after the frame.
  __device__ __forceinline__ void receive(int count) {
    buffer_ = 1 - buffer_;
    if constexpr (It::kCounts) {
      if (thread_ == 0) device::expect_bytes(&arrivals_[buffer_], count * kUnits * 4);
      device::await_bytes(&arrivals_[buffer_], rounds_ >> buffer_ & 1u);
      rounds_ ^= 1u << buffer_;
    } else {
      device::cluster_sync();
    }
  }

  // All frames of sequences [first, first + count). What a frame does between receiving and sending states is
  // what the whole cluster waits for: the rest is done in between.
  __device__ __forceinline__ void walk(long long first, int count, int seq) {
    const Place at = place(count);
    const bool busy = thread_ < (at.sharers * count * kOwn + 31) / 32 * 32;
    Real states[kStates] = {};
    typename It::Unit unit{};
    typename It::Inputs inputs{};
    long long row = (first + at.sequence) * seq;
    for (int i = thread_; i < count * kUnits; i += kThreads) {
      state(i / kUnits, i % kUnits)[buffer_ * kStateBuffer] = it_.initial(first + i / kUnits, i % kUnits);
    }
    if (at.mine) {
      unit = it_.unit(at.unit), inputs = it_.inputs(row, at.unit);
#pragma unroll
      for (int s = 0; s < kStates; ++s) {
        states[s] = {it_.initial(first + at.sequence, s * kUnits + at.unit)};
      }
    }
    device::cluster_sync();  // initial states are read, and the blocks may send
#pragma unroll 1
    for (int left = seq; left > 0; --left, ++row) {
      of_states_.sum(states_ + buffer_ * kStateBuffer, sums_ + buffer_ * kSumBuffer, count);
      if constexpr (It::kAwaits) {
        if (busy && at.mine) it_.await(row, at.unit, &inputs);
      }
      __syncthreads();
      if (busy) {
        advance(at, unit, inputs, states);
        if (left > 1) send(at, states[0].v);
        if (at.mine && at.sharer == 0) it_.put(row, at.unit, inputs, states);
        if (at.mine && left > 1) inputs = it_.inputs(row + 1, at.unit);
      }
      // The thread that says how many bytes are expected does not come behind those that wait for them.
      if constexpr (It::kAwaits) __syncwarp();
      if (left > 1) receive(count);
    }
    if (at.mine && at.sharer == 0) it_.finish(first + at.sequence, at.unit, states);
  }

  const It& it_;
  float* const states_;
  float* const sums_;
  device::Arrivals* const arrivals_;
  const int rank_, thread_;
  const Sums<It> of_states_;
  int buffer_ = 0;       // that has the states before the frame
  unsigned rounds_ = 0;  // of each buffer's arrivals: the parity
};

#endif

}  // namespace walk
}  // namespace exphil
