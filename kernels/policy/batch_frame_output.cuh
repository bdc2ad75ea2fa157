// What follows the layers of a tile of policy/batch_frame.cu: the output's product, or hidden for other
// launches.
#pragma once

#include "kernels/policy/batch_frame_layer.cuh"

namespace exphil {
namespace policy {

#if EXPHIL_CLUSTERS

class FrameOutput : protected FrameLayer {
 protected:
  using FrameLayer::FrameLayer;

  __device__ __forceinline__ void copy_output_weights() const {
    constexpr int kColumns = product_columns(O::kOutputs), kAll = O::kK / 4 * kOuts;
    const auto* const from = static_cast<const Group*>(args_.of_out.weights);
    for (int i = thread_; i < kAll; i += kThreads) {
      const int column = rank_ * kOuts + i % kOuts;
      const bool valid = column < O::kOutputs;
      device::copy_async<sizeof(Group)>(&shared_.out_weights[i],
                                        from + i / kOuts * kColumns + (valid ? column : 0), valid);
    }
    device::commit_copies();
  }
  __device__ __forceinline__ float* output_sum(int segment, int row) const {
    return shared_.sums + (segment * ROWS + row) * kOuts;
  }
  // A lane has four rows and two columns: of 32 rows from number `tile` on, and of eight columns.
  static constexpr int kOutRows = 4, kOutColumns = 2;
  __device__ __forceinline__ void add_output_segment(int segment, int tile) const {
    for (int column = 0; column < kOuts; column += 4 * kOutColumns) {
      const auto row_of = [&](int i) { return tile + lane_ / 4 + 8 * i; };
      const auto column_of = [&](int j) { return column + lane_ % 4 + 4 * j; };
      float sum[kOutRows][kOutColumns] = {};
#pragma unroll
      for (int g = 0; g < kFours; ++g) {
        float4 weight[kOutColumns];
#pragma unroll
        for (int j = 0; j < kOutColumns; ++j) {
          weight[j] =
              widen(shared_.out_weights[(segment * kFours + g) * kOuts + least(column_of(j), kOuts - 1)]);
        }
#pragma unroll
        for (int i = 0; i < kOutRows; ++i) {
          const float* const x = &shared_.x[least(row_of(i), ROWS - 1)][segment * kSegment + 4 * g];
          const float4 value = *reinterpret_cast<const float4*>(x);
#pragma unroll
          for (int j = 0; j < kOutColumns; ++j) sum[i][j] = dot4(weight[j], value, sum[i][j]);
        }
      }
#pragma unroll
      for (int i = 0; i < kOutRows; ++i) {
#pragma unroll
        for (int j = 0; j < kOutColumns; ++j) {
          if (row_of(i) >= rows_ || column_of(j) >= kOuts) continue;
          output_sum(segment, row_of(i))[column_of(j)] = sum[i][j];
        }
      }
    }
  }
  __device__ __forceinline__ void answer() const {
    constexpr int kOutSegments = O::kK / kSegment;
    const int own_rows = divide_up(rows_, TEAM), first_own = rank_ * own_rows;
    device::copies_done();
    sync();
    for (int segment = warp_; segment < kOutSegments; segment += kWarps) {
      for (int tile = 0; tile < rows_; tile += 8 * kOutRows) add_output_segment(segment, tile);
    }
    for (int first = warp_; first < rows_; first += kEach * kWarps) {
      NormFactors norms[kEach];
      find_norms<O>(first, false, args_.out_epsilon, norms);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (lane_ == 0 && first + i * kWarps < rows_) shared_.norms[first + i * kWarps] = norms[i];
      }
    }
    sync();
    for (int at = thread_; at < rows_ * kOuts; at += kThreads) {
      const int row = at / kOuts, own = at % kOuts, column = rank_ * kOuts + own;
      if (column >= O::kOutputs) continue;
      const float sum = add_segments<kOutSegments>(output_sum(0, row) + own, ROWS * kOuts);
      const float value =
          ProductColumn::of<O>(args_.of_out, column).value<O>(sum, shared_.norms[row], 0.0f, column);
      device::store_cluster(&shared_.answers[row % own_rows * O::kOutputs + column], row / own_rows, value);
    }
    device::cluster_sync();
    float* const out = args_.out + (first_row_ + first_own) * O::kOutputs;
    for (int at = thread_; at < least(own_rows, rows_ - first_own) * O::kOutputs; at += kThreads) {
      out[at] = shared_.answers[at];
    }
    sync();
    if (thread_ != 0) return;
    tell_finished(args_);
  }

  // For the launches of the output's phases; a block writes some rows.
  __device__ __forceinline__ void put_hidden() const {
    const int own_rows = divide_up(rows_, TEAM), first_own = rank_ * own_rows;
    float* const out = args_.out + (first_row_ + first_own) * X::kK;
    for (int at = thread_; at < least(own_rows, rows_ - first_own) * X::kK; at += kThreads) {
      out[at] = shared_.x[first_own + at / X::kK][at % X::kK];
    }
  }
};

#endif

}  // namespace policy
}  // namespace exphil
