// What the kernels of a gradient's products have in common (policy/product_gradient.cu,
// product_gradient_tensor.cu, product_gradient_wide.cu): a block's tile of a job, and what happens to its
// sums before they are written.
#pragma once

#include "kernels/common/device_math.cuh"
#include "kernels/common/launches.cuh"
#include "kernels/policy/gradient_arguments.cuh"

namespace exphil {
namespace policy {
namespace {

__device__ __forceinline__ const ProductJob& job_of_block(const ProductJobs& jobs) {
  int job = 0;
  while (job + 1 < jobs.count && blockIdx.x >= jobs.jobs[job + 1].first_block) ++job;
  return jobs.jobs[job];
}

// kRows: of a tile, 64 or 32.
template <int kRows>
class JobTile {
 protected:
  __device__ __forceinline__ explicit JobTile(const ProductJob& job)
      : job_(job), thread_(static_cast<int>(threadIdx.x)) {
    // Numbers of blocks: a grid has less than 2^31.
    const unsigned block = blockIdx.x - static_cast<unsigned>(job.first_block);
    const auto across = static_cast<unsigned>((job.columns + kTileColumns - 1) / kTileColumns);
    const auto down = static_cast<unsigned>((job.rows + kRows - 1) / kRows);
    column_ = static_cast<int>(block % across) * kTileColumns;
    row_ = static_cast<long long>(block / across % down) * kRows;
    part_ = static_cast<int>(block / across / down);
  }

  // Whether this thread sums up a row of A, and that sum.
  __device__ __forceinline__ bool sums_rows() const {
    return job_.row_sums != nullptr && column_ == 0 && thread_ < kRows;
  }
  __device__ __forceinline__ void write_row_sum(float sum) const {
    if (sums_rows() && row_ + thread_ < job_.rows) job_.row_sums[part_ * job_.rows + row_ + thread_] = sum;
  }

  // The sums of four neighbours of a row of the tile, where they exist.
  __device__ __forceinline__ void write_four(int row_in_tile, int column_in_tile, float (&values)[4]) const {
    const long long row = row_ + row_in_tile;
    const int column = column_ + column_in_tile, left = job_.columns - column;
    if (row >= job_.rows || left <= 0) return;
    finish(values, row, column, left);
    float* const to = job_.out + part_ * job_.out_part + row * job_.out_row + column;
    const bool vector = job_.out_row % 4 == 0 && job_.out_part % 4 == 0 &&
                        reinterpret_cast<unsigned long long>(job_.out) % 16 == 0;
    if (vector && left >= 4) {
      *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
      return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j < left) to[j] = values[j];
    }
  }

  const ProductJob& job_;
  const int thread_;
  long long row_;
  int column_, part_;

 private:
  // left: how many of the four exist.
  __device__ __forceinline__ void finish(float (&values)[4], long long row, int column, int left) const {
    const auto of = [&](const float* from, int j) { return from[column + (j < left ? j : left - 1)]; };
    if (job_.bias != nullptr) {
#pragma unroll
      for (int j = 0; j < 4; ++j) values[j] = __fadd_rn(values[j], of(job_.bias, j));
    }
    if (job_.after == kRelu) {
#pragma unroll
      for (int j = 0; j < 4; ++j) values[j] = device::rectified(values[j]);
    } else if (job_.after != kStore) {
      float others[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) others[j] = of(job_.other + row * job_.other_row, j);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (job_.after == kAdd) {
          values[j] = __fadd_rn(values[j], others[j]);
        } else {
          values[j] = others[j] <= 0.0f ? 0.0f : values[j];
        }
      }
    }
  }
};

}  // namespace
}  // namespace policy
}  // namespace exphil
