// The matrix products of policy/product.cuh where there are some thousands of results or more: the warps of a
// block share the inner dimension (split-k), and each thread reuses what it reads for several results.
#pragma once

#include "kernels/common/device_memory.cuh"
#include "kernels/policy/product.cuh"

namespace exphil {
namespace policy {

// 8 lanes of a warp lie along the columns and 4 along the rows. Of four neighbouring lanes two have the same
// row and two the same column: what a warp reads as 16 bytes a lane then takes fewer accesses of shared
// memory.
__device__ __forceinline__ int lane_row(int lane) {
  return lane / 2 % 4;
}
__device__ __forceinline__ int lane_column(int lane) {
  return lane % 2 + lane / 8 * 2;
}

// What one warp holds: its segment of the tile's rows of X and columns of W, as groups of four k, and the
// sums of the segment before. Padded so that neither the copies, which take the 8 groups of a row at a time,
// nor the other accesses have bank conflicts.
struct alignas(16) SomeSlice {
  static constexpr int kGroups = kSegment / 4;
  float4 x[kGroups][kSomeRows + 1];
  Group w[kGroups][kSomeColumns];
  float sums[kSomeRows][kSomeColumns + 8];
};

// A tile of kSomeRows rows by 32 columns: every warp computes all of it over each kWarps-th segment, from a
// slice of shared memory that it alone fills; the block then adds the sums of the segments in order.
template <int kK, int kOutputs, class Epilogue>
class SomeProduct : SplitTile {
 public:
  using Shared = SomeSlice[kSomeThreads / 32];  // of each warp

  __device__ __forceinline__ SomeProduct(const ProductArguments& args, Shared& slices)
      : SplitTile(args, kSomeRows), slices_(slices), slice_(slices[warp_]) {}

  __device__ __forceinline__ void run() {
    begin_launch_after();
    fetch_weights(warp_);
    Completion<kMine> completion;
    load_column<kOutputs, Epilogue>(completion);
    await_launch_before();
    fetch_rows(warp_);
    load_rows<kWarps, kOutputs, Epilogue, false>(completion);
    float total[kMine] = {};
#pragma unroll 1
    for (int first = 0; first < kSegments; first += kWarps) {
      float sum[kI][kJ] = {};
      device::copies_done();
      __syncwarp();
      if (first + warp_ < kSegments) add_segment(sum);
      __syncwarp();
      fetch_weights(first + kWarps + warp_);
      fetch_rows(first + kWarps + warp_);
      put(sum);
      __syncthreads();
      add<kWarps, kSegments>(first, slices_, total);
      __syncthreads();
    }
    write<kWarps, kOutputs, Epilogue>(total, completion);
  }

 private:
  static constexpr int kGroups = SomeSlice::kGroups, kSegments = kK / kSegment;
  static_assert(kK % kSegment == 0 && kSomeColumns == 32, "a lane for each column");
  static constexpr int kWarps = kSomeThreads / 32;
  // A lane has kI x kJ sums of its warp's segment.
  static constexpr int kI = kSomeRows / 4, kJ = kSomeColumns / 8, kMine = kSomeRows / kWarps;
  static_assert(kMine * kWarps == kSomeRows, "as many rows for every warp");

  __device__ __forceinline__ void fetch_weights(int segment) {
    if (segment >= kSegments) return;
    const Group* const from = static_cast<const Group*>(args_.weights) + first_column_ + lane_;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      device::copy_async<sizeof(Group)>(&slice_.w[g][lane_],
                                        from + (segment * kGroups + g) * product_columns(kOutputs), true);
    }
  }

  __device__ __forceinline__ void fetch_rows(int segment) {
    if (segment >= kSegments) return;
    const int g = lane_ % kGroups;
    const float* from =
        args_.x + (first_row_ + lane_ / kGroups) * args_.x_stride + segment * kSegment + 4 * g;
#pragma unroll
    for (int i = 0; i < kI; ++i, from += 4 * args_.x_stride) {
      const int row = lane_ / kGroups + 4 * i;
      device::copy_async<16>(&slice_.x[g][row], from, first_row_ + row < args_.rows);
    }
  }

  __device__ __forceinline__ void add_segment(float (&sum)[kI][kJ]) const {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      float4 w[kJ];
#pragma unroll
      for (int j = 0; j < kJ; ++j) w[j] = widen(slice_.w[g][lane_column(lane_) + 8 * j]);
#pragma unroll
      for (int i = 0; i < kI; ++i) {
        const float4 x = slice_.x[g][lane_row(lane_) + 4 * i];
#pragma unroll
        for (int j = 0; j < kJ; ++j) sum[i][j] = dot4(w[j], x, sum[i][j]);
      }
    }
  }

  __device__ __forceinline__ void put(const float (&sum)[kI][kJ]) {
#pragma unroll
    for (int i = 0; i < kI; ++i) {
#pragma unroll
      for (int j = 0; j < kJ; ++j)
        slice_.sums[lane_row(lane_) + 4 * i][lane_column(lane_) + 8 * j] = sum[i][j];
    }
  }

  SomeSlice* const slices_;
  SomeSlice& slice_;
};

}  // namespace policy
}  // namespace exphil
