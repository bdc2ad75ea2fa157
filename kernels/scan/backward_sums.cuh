// The sums over states and over channels of scan/backward.cu, in an order that shapes decide. Included by it
// alone.
#pragma once

#include "kernels/scan/backward_lane.cuh"
#include "kernels/scan/reduce.cuh"

namespace exphil {
namespace scan {

// What one step of a lane's states gives to sums over states: {dt, dt' x and, with z, y; channels}, of which
// the fourth with z is not used; and to sums over channels: {b, c; states}.
constexpr int kStateValues = (HAS_Z ? 4 : 2) * kChannels, kRowValues = 2 * kLaneRow;
struct StepSums {
  float over_states[kStateValues];
  float over_channels[kRowValues];
};

__device__ __forceinline__ void clear(StepSums& sums) {
#pragma unroll
  for (int k = 0; k < kStateValues; ++k) sums.over_states[k] = 0.0f;
#pragma unroll
  for (int k = 0; k < kRowValues; ++k) sums.over_channels[k] = 0.0f;
}

// Over the lanes of a column, into the streams; and over the columns of the warp, into `to`, {2, kRow}.
// Calls load_next() once no lane reads the step's streams any more.
template <class LoadNext>
__device__ __forceinline__ void reduce_step(const Place& s, const Shared& shared, int step, StepSums& sums,
                                            float* to, LoadNext load_next) {
  reduce_lanes<kLanes, kStateValues>(sums.over_states, s.part);
  __syncwarp();  // every lane has read the step's streams
  load_next();
#pragma unroll
  for (int k = 0; k < kStateValues; k += kLanes) {
    const int value = k + s.part, kind = value / kChannels;
    const int place = step * kTileChannels + s.local() + value % kChannels;
    if (value < kStateValues && kind < 3) {
      (kind == 0 ? shared.v : kind == 1 ? shared.dy : shared.y)[place] = sums.over_states[k / kLanes];
    }
  }
#if !B_CONSTANT || !C_CONSTANT
  reduce_lanes<kColumns, kRowValues, kLanes>(sums.over_channels, threadIdx.x);
  const int number = threadIdx.x / kLanes;
#pragma unroll
  for (int k = 0; k < kRowValues; k += kColumns) {
    const int value = k + number;
    if (value < kRowValues) {
      to[value / kLaneRow * kRow + s.part * kLaneRow + value % kLaneRow] = sums.over_channels[k / kColumns];
    }
  }
#endif
}

// Adds up the warps' sums of the pieces from `piece` on that have not been added up, and what earlier tiles
// of channels left. Rows of b and of c take turns, one of each for a step, in shared memory one behind
// another. A thread takes kSumPiece floats of a row, kSumsDown rows apart.
constexpr int kSumPiece = kRow == kRowUsed && kRow % 4 == 0 ? 4 : 1;
constexpr int kSumsAcross = kRow / kSumPiece < kThreads ? kRow / kSumPiece : kThreads;
constexpr int kSumsDown = kThreads / kSumsAcross;
__device__ __forceinline__ void store_projection_sums(const BackwardArguments& all, const Place& s,
                                                      const Shared& shared, int piece, bool first_tile) {
#if !B_CONSTANT || !C_CONSTANT
  // A thread's share, where it is small.
  constexpr int kShare = kLayout.summed_pieces() * kSteps * 2 / kSumsDown;
  constexpr int kAtOnce = kShare < 1 ? 1 : kShare < 4 ? kShare : 4;
  const Arguments& p = all.scan;
  const long long part = s.batch * p.blocks_per_batch + blockIdx.x % p.blocks_per_batch;
  const int begin = piece * kSteps, end = min(s.steps, begin + (kLayout.summed(piece) + 1) * kSteps);
  // Rows of b_sums and c_sums from the first of the pieces on.
  const long long first = (part * p.seq + (s.row(p, begin) - s.batch * p.seq)) * kRowUsed;
  const int next = s.reverse ? -kRowUsed : kRowUsed;
  const float* sums = shared.kept + kLayout.sums_at(piece);
  __syncthreads();
#pragma unroll 1
  for (int k = s.thread % kSumsAcross * kSumPiece; k < kRowUsed; k += kSumsAcross * kSumPiece) {
#pragma unroll 1
    for (int row = s.thread / kSumsAcross; row < 2 * (end - begin); row += kAtOnce * kSumsDown) {
      float* to[kAtOnce];
      float sum[kAtOnce][kSumPiece] = {};
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int at = row + u * kSumsDown;
        const int step = kSumsDown % 2 == 0 ? (row >> 1) + u * (kSumsDown / 2) : at >> 1;
        const bool is_c = at & 1, exists = begin + step < end && !(is_c ? C_CONSTANT : B_CONSTANT);
        to[u] = exists ? (is_c ? all.c_sums : all.b_sums) + first + step * next + k : nullptr;
        if (exists && !first_tile) device::load_floats(to[u], sum[u]);
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        if (to[u] == nullptr) continue;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) {
          float other[kSumPiece];
          device::load_floats(sums + warp * kLayout.of_warp() + (row + u * kSumsDown) * kRow + k, other);
#pragma unroll
          for (int f = 0; f < kSumPiece; ++f) sum[u][f] = __fadd_rn(sum[u][f], other[f]);
        }
        device::store_floats(to[u], sum[u]);
      }
    }
  }
#endif
}

}  // namespace scan
}  // namespace exphil
