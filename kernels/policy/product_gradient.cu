// The matrix products of a policy's gradient: the forward pass (X W^T), the gradient of a layer's input (dY
// W) and that of its weight (dY^T X, a sum over all rows). One kernel serves all three. A launch runs several
// independent products. Launched by c_src/cuda/policy/gradient_kernels.cpp. Sizes are arguments, so one
// module serves every policy.
//
// Compiled with -D TENSOR_CORES: 0, policy_gradient_product, which multiplies in f32; or 1 for devices that
// know tf32, policy_gradient_product_tensor, which multiplies as tf32x3 does (common/tensor.cuh). The error
// of a product of the latter is below 2^-21 of it; tensor cores cut what they add, so that their sums are 16
// long at most.
//
// Every element is summed in an order of k that is the same whatever the number of rows. A weight's gradient
// is summed in fixed parts of the rows; policy_gradient_sums adds the parts in order.
#include "kernels/policy/product_gradient_sums.cuh"

namespace exphil {
namespace policy {
namespace {

// kA, kB: whether the operands lie along k.
template <int kRows, bool kA, bool kB, class Sums>
class JobProduct {
 public:
  __device__ __forceinline__ JobProduct(const ProductJob& job, Tiles* tiles)
      : job_(job), tiles_(tiles), thread_(static_cast<int>(threadIdx.x)) {
    const long long block = blockIdx.x - job.first_block;
    const int across = (job.columns + kTileColumns - 1) / kTileColumns;
    const long long down = (job.rows + kRows - 1) / kRows;
    column_ = static_cast<int>(block % across) * kTileColumns;
    row_ = block / across % down * kRows;
    part_ = static_cast<int>(block / (across * down));
  }

  __device__ __forceinline__ void run() {
    int steps = 0;
    for (int p = 0; p < job_.piece_count; ++p) steps += (depth(p) + kTileDepth - 1) / kTileDepth;
    Sums total;
    float row_sum = 0.0f;
    // One loop also for the copies before the first step: a launch is so short that it counts how much code a
    // multiprocessor has to fetch.
#pragma unroll 1
    for (int step = 1 - kStages; step < steps; ++step) {
      if (step >= 0) {
        device::wait_copies<kStages - 2>();
        __syncthreads();
      }
      fetch(tiles_[static_cast<unsigned>(step + kStages - 1) % kStages]);  // that of the step before
      device::commit_copies();
      if (step < 0) continue;
      const Tiles& now = tiles_[static_cast<unsigned>(step) % kStages];
      total.template add<kA, kB>(now.a, now.b);
      if constexpr (!kA) {
        if (sums_rows()) add_row(now.a, &row_sum);
      }
    }
    write(total);
    if (!kA && sums_rows() && row_ + thread_ < job_.rows) {
      job_.row_sums[part_ * job_.rows + row_ + thread_] = row_sum;
    }
  }

 private:
  __device__ __forceinline__ bool sums_rows() const {
    return job_.row_sums != nullptr && column_ == 0 && thread_ < kRows;
  }

  __device__ __forceinline__ void add_row(const float* a, float* sum) const {
#pragma unroll 4
    for (int k = 0; k < kTileDepth; ++k) *sum = __fadd_rn(*sum, a[place<kA>(thread_, k)]);
  }

  // Of this block's part of piece p.
  __device__ __forceinline__ int depth(int p) const {
    const long long left = job_.pieces[p].depth - part_ * job_.part_depth;
    return static_cast<int>(left < job_.part_depth ? left : job_.part_depth);
  }

  // Begins to copy the next step, of one piece after another.
  __device__ __forceinline__ void fetch(Tiles& to) {
    while (left_ <= 0) {
      if (piece_ == job_.piece_count) return;
      const ProductPiece& p = job_.pieces[piece_];
      const long long begin = part_ * job_.part_depth;
      a_.begin(p.a, p.a_stride, row_, job_.rows, begin);
      b_.begin(p.b, p.b_stride, column_, job_.columns, begin);
      left_ = depth(piece_++);
    }
    a_.copy(to.a, left_), b_.copy(to.b, left_);
    left_ -= kTileDepth;
  }

  // Four neighbours of a row, of which `left` exist.
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
        values[j] = job_.after == kAdd  ? __fadd_rn(values[j], others[j])
                    : others[j] <= 0.0f ? 0.0f
                                        : values[j];
      }
    }
  }

  // By way of shared memory, so that neighbours are written together.
  __device__ __forceinline__ void write(const Sums& total) const {
    float* const sums = tiles_[0].a;
    static_assert(sizeof(Tiles) * kStages >= sizeof(float) * kRows * kSumStride, "the sums are in the tiles");
    __syncthreads();
    total.store(sums);
    __syncthreads();
    float* const out = job_.out + part_ * job_.out_part;
    const bool vector = job_.out_row % 4 == 0 && job_.out_part % 4 == 0 &&
                        reinterpret_cast<unsigned long long>(job_.out) % 16 == 0;
#pragma unroll 2
    for (int four = thread_; four < kRows * kTileColumns / 4; four += kTileThreads) {
      const int row_in_tile = four / (kTileColumns / 4), column_in_tile = four % (kTileColumns / 4) * 4;
      const long long row = row_ + row_in_tile;
      const int column = column_ + column_in_tile, left = job_.columns - column;
      if (row >= job_.rows || left <= 0) continue;
      const float4 sum = *reinterpret_cast<const float4*>(sums + row_in_tile * kSumStride + column_in_tile);
      float values[4] = {sum.x, sum.y, sum.z, sum.w};
      finish(values, row, column, left);
      float* const to = out + row * job_.out_row + column;
      if (vector && left >= 4) {
        *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
        continue;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j < left) to[j] = values[j];
      }
    }
  }

  const ProductJob& job_;
  Tiles* const tiles_;
  const int thread_;
  long long row_;
  int column_, part_;
  Operand<kRows, kA> a_;
  Operand<kTileColumns, kB> b_;
  int piece_ = 0, left_ = 0;  // of what is fetched: the next piece, and k left of the one before it
};

template <int kRows, class Sums>
__device__ __forceinline__ void run_job(const ProductJob& job, Tiles* tiles) {
  switch (job.product) {
    case kForwardProduct:
      return JobProduct<kRows, true, true, Sums>(job, tiles).run();
    case kInputProduct:
      return JobProduct<kRows, true, false, Sums>(job, tiles).run();
    case kWeightProduct:
      return JobProduct<kRows, false, false, Sums>(job, tiles).run();
  }
}

template <template <int> class Sums>
__device__ __forceinline__ void run_jobs(const ProductJobs& jobs) {
  __shared__ __align__(16) Tiles tiles[kStages];
  int job = 0;
  while (job + 1 < jobs.count && blockIdx.x >= jobs.jobs[job + 1].first_block) ++job;
  if (jobs.tile_rows == kTileRows) {
    run_job<kTileRows, Sums<kTileRows>>(jobs.jobs[job], tiles);
  } else {
    run_job<kLowTileRows, Sums<kLowTileRows>>(jobs.jobs[job], tiles);
  }
}

}  // namespace
}  // namespace policy
}  // namespace exphil

// grid: the tiles of each part of each job, job after job.
#if TENSOR_CORES
extern "C" __global__ void __launch_bounds__(exphil::policy::kTileThreads, 3)
    policy_gradient_product_tensor(const __grid_constant__ exphil::policy::ProductJobs jobs) {
  exphil::policy::run_jobs<exphil::policy::TensorTileSums>(jobs);
}
#else
extern "C" __global__ void __launch_bounds__(exphil::policy::kTileThreads, 3)
    policy_gradient_product(const __grid_constant__ exphil::policy::ProductJobs jobs) {
  exphil::policy::run_jobs<exphil::policy::PlainSums>(jobs);
}
#endif
