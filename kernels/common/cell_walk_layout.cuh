// How the blocks of a cluster share a walk over the frames of a GRU or an LSTM (common/cell_walk.cuh): which
// units and which weights each of them has, its threads, and its shared memory. Compiled by the host compiler
// and by NVRTC.
#pragma once

#include "kernels/common/cells.cuh"
#include "kernels/common/segments.cuh"

namespace exphil {
namespace walk {

// That a cluster walks at a time, where its shared memory has room; and on tensor cores.
constexpr int kMostSequences = 8, kMostTensorSequences = 16;
// A segment of a state in shared memory has 16 bytes behind it, so that the lanes of a warp that read two
// segments read different banks.
constexpr int kSegmentStride = kSegment + 4;

// A block has `own` units of each gate: as many rows of U, the matrix of the states. A task is one segment of
// all rows of a unit, which one thread sums up; or, on tensor cores, of 16 units, by one warp. A thread or a
// warp holds the weights of its first task in registers, in f32; those of further tasks are in shared memory,
// as they are stored.
struct Shape {
  formulas::Cell cell = formulas::Cell::gru;
  int units = kSegment;  // a multiple of the segments' length
  int team = 1;          // blocks of a cluster
  int most = kMostSequences;
  bool tensor = false;  // in tf32x3 (common/tensor.cuh)

  constexpr int gates() const { return formulas::gates_of(cell); }
  constexpr int segments() const { return units / kSegment; }
  // Of a task.
  constexpr int task_units() const { return tensor ? 16 : 1; }
  constexpr int task_threads() const { return tensor ? 32 : 1; }
  // A multiple of 4: blocks send each other float4s.
  constexpr int own() const {
    const int together = tensor ? task_units() : 4;
    return ((units + team - 1) / team + together - 1) / together * together;
  }
  constexpr int tasks() const { return own() / task_units() * segments(); }
  // A quarter of a multiprocessor has 16384 registers. On tensor cores a thread has gates() * 16 of weights
  // and some 80 others. Elsewhere gates() * 32 and some 70 others: three warps of a GRU, two of an LSTM on
  // each quarter.
  constexpr int threads() const {
    const int most = tensor ? (gates() == 4 ? 320 : 384) : gates() == 4 ? 256 : 384;
    const int all = (tasks() * task_threads() + 31) / 32 * 32;
    return all < most ? all : most;
  }
  constexpr int held() const { return threads() / task_threads(); }  // tasks, at the most
  constexpr int staged() const { return tasks() > held() ? tasks() - held() : 0; }
  constexpr int sequences() const {  // at a time
    return threads() / own() < most ? threads() / own() : most;
  }
  // Every block has units, so that every block waits for every other one; and a thread for each of them.
  constexpr bool good() const {
    return formulas::recurrent(cell) && units % kSegment == 0 && own() * (team - 1) < units &&
           sequences() > 0;
  }

  // ---- shared memory, in floats ----
  //
  // On tensor cores a warp reads the states of eight sequences, and writes the sums of eight, without bank
  // conflicts.

  // Between the states of two sequences: {segments, kSegmentStride}.
  constexpr int state_stride() const {
    return segments() * kSegmentStride + (tensor ? (80 - segments() * kSegmentStride % 32) % 32 : 0);
  }
  // Between the sums of two: of segments, {gates, segments, own}.
  constexpr int gate_stride() const { return segments() * own(); }
  constexpr int sum_stride() const { return gates() * gate_stride() + (tensor ? 4 : 0); }

  // ---- shared memory, in bytes ----

  // The states after a frame, twice: {2, sequences, state_stride}.
  constexpr int states_bytes() const { return 2 * sequences() * state_stride() * 4; }
  // The sums of segments, twice: {2, sequences, sum_stride}.
  constexpr int sums_bytes() const { return 2 * sequences() * sum_stride() * 4; }
  constexpr int arrivals_bytes() const { return 16; }  // a word for each of the two states
  // weight_bytes: of a stored weight. {gates, a segment, staged tasks of task_units}
  constexpr long long weights_bytes(int weight_bytes) const {
    return static_cast<long long>(gates()) * kSegment * staged() * task_units() * weight_bytes;
  }
  constexpr long long shared_bytes(int weight_bytes) const {
    return states_bytes() + sums_bytes() + arrivals_bytes() + weights_bytes(weight_bytes);
  }
};

}  // namespace walk
}  // namespace exphil
