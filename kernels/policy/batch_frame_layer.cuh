// A layer of a tile of policy/batch_frame.cu: its cells, and the units that the blocks send each other.
#pragma once

#include "kernels/policy/batch_frame_news.cuh"

namespace exphil {
namespace policy {

#if EXPHIL_CLUSTERS

class FrameLayer : protected FrameNews {
 protected:
  using FrameNews::FrameNews;

  // Begins to read what the cells of the chunk need besides x.
  __device__ __forceinline__ void begin_cells(int layer, const Chunk& chunk) const {
    for_each_row(
        chunk, [&](int i, int row) __attribute__((always_inline)) {
          float* const to = &shared_.kept[warp_ + i * kWarps][0][lane_];
          const float* const from = shared_.places[row].from + state_at(layer) + unit_;
#pragma unroll
          for (int gate = 0; gate < kGates; ++gate) {
            device::copy_async<4>(to + gate * kFrameUnits, place_of_h(row, layer, gate), true);
          }
#pragma unroll
          for (int s = 0; s < kStates; ++s) {
            device::copy_async<4>(to + (kGates + s) * kFrameUnits, from + s * kUnits, true);
          }
        });
  }
  // The cells of the chunk, when the sums of its segments are there.
  __device__ __forceinline__ void advance(int layer, const Chunk& chunk) const {
    const int number = kNetwork.layers + layer;
    ProductColumn columns[kGates];
    load_columns<X>(number, columns);
    NormFactors norms[kEach];
    find_norms<X>(chunk.first + warp_, layer == 0, args_.epsilon, norms);
    float sums[kEach][kGates];
    total(segments_of(number), sums);
    device::copies_done();
    // Of all rows together, so that none waits for another: beyond the last one, values that nobody reads.
    float hidden[kEach];
    Real states[kEach][kStates];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float* const kept = &shared_.kept[least(warp_ + i * kWarps, CHUNK - 1)][0][lane_];
      Real x[kGates], h[kGates];
#pragma unroll
      for (int s = 0; s < kStates; ++s) states[i][s] = {kept[(kGates + s) * kFrameUnits]};
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        h[gate] = {kept[gate * kFrameUnits]};
        x[gate] = {columns[gate].value<X>(sums[i][gate], norms[i], 0.0f, gate * kUnits + unit_)};
      }
      hidden[i] = formulas::advance_cell<kIt.cell, Math>(x, h, states[i]).v;
    }
    for_each_row(
        chunk, [&](int i, int row) __attribute__((always_inline)) {
          shared_.made[row][lane_] = hidden[i];
          float* const to = shared_.places[row].to + state_at(layer) + unit_;
#pragma unroll
          for (int s = 0; s < kStates; ++s) to[s * kUnits] = states[i][s].v;
        });
  }
  // The units of all blocks replace hidden. Four lanes have the same four units, for different blocks.
  __device__ __forceinline__ void exchange() const {
    device::cluster_sync();  // all have been made, and hidden is not read any more
    const int four = lane_ / 4 * 4;
#pragma unroll 2
    for (int row = warp_; row < rows_; row += kWarps) {
      const float4 units = *reinterpret_cast<const float4*>(&shared_.made[row][four]);
      auto* const place = reinterpret_cast<float4*>(&shared_.x[row][rank_ * kFrameUnits + four]);
#pragma unroll
      for (int i = 0; i < divide_up(TEAM, 4); ++i) {
        const int rank = lane_ % 4 + 4 * i;
        if (TEAM % 4 == 0 || rank < TEAM) device::store_cluster(place, rank, units);
      }
    }
    // The columns beyond the units.
    constexpr int kBeyond = X::kK - kUnits;
    for (int at = thread_; at < kBeyond * rows_; at += kThreads) {
      shared_.x[at / most(kBeyond, 1)][kUnits + at % most(kBeyond, 1)] = 0.0f;
    }
    device::cluster_sync();
  }
};

#endif

}  // namespace policy
}  // namespace exphil
