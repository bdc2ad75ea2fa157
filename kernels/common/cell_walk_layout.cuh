// How the blocks of a cluster share a walk over the frames of a GRU or an LSTM (common/cell_walk.cuh): which
// units and which weights each of them has, its threads, and its shared memory. Compiled by the host compiler
// and by NVRTC.
#pragma once

#include "kernels/common/cells.cuh"
#include "kernels/common/segments.cuh"

namespace exphil {
namespace walk {

constexpr int kMostSequences = 8;  // that a cluster walks at a time, where its shared memory has room
// A segment of a state in shared memory has 16 bytes behind it, so that the lanes of a warp that read two
// segments read different banks.
constexpr int kSegmentStride = kSegment + 4;

// A block has `own` units of each gate: as many rows of U, the matrix of the states. One thread sums up one
// segment of all rows of a unit: a task. A thread holds the weights of its first task in registers, in f32;
// those of further tasks are in shared memory, as they are stored.
struct Shape {
  formulas::Cell cell = formulas::Cell::gru;
  int units = kSegment;  // a multiple of the segments' length
  int team = 1;          // blocks of a cluster
  int most = kMostSequences;

  constexpr int gates() const { return formulas::gates_of(cell); }
  constexpr int segments() const { return units / kSegment; }
  // A multiple of 4: blocks send each other float4s.
  constexpr int own() const { return ((units + team - 1) / team + 3) / 4 * 4; }
  constexpr int tasks() const { return own() * segments(); }
  // Each thread has gates() * 32 registers of weights and some 70 others, of 65536 in all.
  constexpr int threads() const {
    const int most = gates() == 4 ? 320 : 384, all = (tasks() + 31) / 32 * 32;
    return all < most ? all : most;
  }
  constexpr int staged() const { return tasks() > threads() ? tasks() - threads() : 0; }  // tasks
  constexpr int sequences() const {                                                       // at a time
    return threads() / own() < most ? threads() / own() : most;
  }
  // Every block has units, so that every block waits for every other one; and a thread for each of them.
  constexpr bool good() const {
    return formulas::recurrent(cell) && units % kSegment == 0 && own() * (team - 1) < units &&
           sequences() > 0;
  }

  // ---- shared memory, in bytes ----

  // The states after a frame, twice: {2, sequences, segments, kSegmentStride}.
  constexpr int states_bytes() const { return 2 * sequences() * segments() * kSegmentStride * 4; }
  // The sums of segments, twice: {2, sequences, gates, tasks}.
  constexpr int sums_bytes() const { return 2 * sequences() * gates() * tasks() * 4; }
  constexpr int arrivals_bytes() const { return 16; }  // a word for each of the two states
  // weight_bytes: of a stored weight. {gates, groups of 4, staged}
  constexpr long long weights_bytes(int weight_bytes) const {
    return static_cast<long long>(gates()) * kSegment * staged() * weight_bytes;
  }
  constexpr long long shared_bytes(int weight_bytes) const {
    return states_bytes() + sums_bytes() + arrivals_bytes() + weights_bytes(weight_bytes);
  }
};

}  // namespace walk
}  // namespace exphil
