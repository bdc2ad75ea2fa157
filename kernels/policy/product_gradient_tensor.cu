// The products of policy/product_gradient.cu on tensor cores, as tf32x3 multiplies (common/tensor.cuh): for
// devices that know tf32; for others the kernel is empty, because they are never given it and NVRTC takes
// minutes to compile it of their shuffles. The error of a product is below 2^-21 of it; tensor cores cut what
// they add, so that their sums are 16 long at most. The forward pass of a network with angles is not made
// here: angles add up what the products of all frames are wrong by, 7.5e-5 rad at the end of a test where
// 5e-5 are allowed.
//
// Every element is summed in an order of k that is the same whatever the number of rows.
#include "kernels/common/tensor.cuh"
#include "kernels/policy/product_gradient_job.cuh"
#include "kernels/policy/product_gradient_tiles.cuh"

namespace exphil {
namespace policy {
namespace {

// A tile of kRows (64 or 32) by 64, of which a warp has half of the rows and half of the columns. The sums of
// a step begin at zero and are then added.
template <int kRows>
class TileSums {
 public:
  // The products of a step, of tiles that lie along k or not. In two steps of 8 k. Both operands are rounded:
  // a gradient may cancel.
  template <bool kA, bool kB>
  __device__ __forceinline__ void add(const float* a, const float* b) {
    device::TensorSums sums[kDown][kAcross] = {};
#pragma unroll
    for (int c = 0; c < 4; c += 2) {
      device::TensorWeights left[kDown];
      device::TensorRows right[kAcross];
#pragma unroll
      for (int m = 0; m < kDown; ++m) {
        const int row = first_row(m);
        left[m] = device::tensor_weights<0x1000>(
            make_float4(a[lane_place<kA>(row, lane(), c)], a[lane_place<kA>(row + 8, lane(), c)],
                        a[lane_place<kA>(row, lane(), c + 1)], a[lane_place<kA>(row + 8, lane(), c + 1)]));
      }
#pragma unroll
      for (int n = 0; n < kAcross; ++n) {
        const int column = first_column(n);
        right[n] = device::tensor_rows(b[lane_place<kB>(column, lane(), c)],
                                       b[lane_place<kB>(column, lane(), c + 1)]);
      }
      device::multiply_tf32x3(left, right, sums);
    }
#pragma unroll
    for (int m = 0; m < kDown; ++m) {
#pragma unroll
      for (int n = 0; n < kAcross; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) total_[m][n].of[i] = __fadd_rn(total_[m][n].of[i], sums[m][n].of[i]);
      }
    }
  }

  // To {kRows, kSumStride}.
  __device__ __forceinline__ void store(float* to) const {
#pragma unroll
    for (int m = 0; m < kDown; ++m) {
#pragma unroll
      for (int n = 0; n < kAcross; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = first_row(m) + device::tensor_column(lane(), 2 * half);
          const int column = first_column(n) + device::tensor_row(lane(), 0);
          const float(&of)[4] = total_[m][n].of;
          *reinterpret_cast<float2*>(to + row * kSumStride + column) =
              make_float2(of[2 * half], of[2 * half + 1]);
        }
      }
    }
  }

 private:
  static constexpr int kDown = kRows / 32, kAcross = kTileColumns / 16;

  __device__ __forceinline__ static int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  __device__ __forceinline__ static int first_row(int m) {
    return static_cast<int>(threadIdx.x) / 64 * (kRows / 2) + 16 * m;
  }
  __device__ __forceinline__ static int first_column(int n) {
    return static_cast<int>(threadIdx.x) / 32 % 2 * (kTileColumns / 2) + 8 * n;
  }

  device::TensorSums total_[kDown][kAcross] = {};
};

// kA, kB: whether the operands lie along k.
template <int kRows, bool kA, bool kB>
class JobProduct : JobTile<kRows> {
 public:
  __device__ __forceinline__ JobProduct(const ProductJob& job, Tiles* tiles)
      : JobTile<kRows>(job), tiles_(tiles) {}

  __device__ __forceinline__ void run() {
    int steps = 0;
    for (int p = 0; p < job_.piece_count; ++p) steps += (depth(p) + kTileDepth - 1) / kTileDepth;
    TileSums<kRows> total;
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
        if (this->sums_rows()) add_row(now.a, &row_sum);
      }
    }
    write(total);
    if constexpr (!kA) this->write_row_sum(row_sum);
  }

 private:
  using JobTile<kRows>::job_;
  using JobTile<kRows>::thread_;

  __device__ __forceinline__ void add_row(const float* a, float* sum) const {
#pragma unroll 4
    for (int k = 0; k < kTileDepth; ++k) *sum = __fadd_rn(*sum, a[place<kA>(thread_, k)]);
  }

  // Of this block's part of piece p.
  __device__ __forceinline__ int depth(int p) const {
    const long long left = job_.pieces[p].depth - this->part_ * job_.part_depth;
    return static_cast<int>(left < job_.part_depth ? left : job_.part_depth);
  }

  // Begins to copy the next step, of one piece after another.
  __device__ __forceinline__ void fetch(Tiles& to) {
    while (left_ <= 0) {
      if (piece_ == job_.piece_count) return;
      const ProductPiece& p = job_.pieces[piece_];
      const long long begin = this->part_ * job_.part_depth;
      a_.begin(p.a, p.a_stride, this->row_, job_.rows, begin);
      b_.begin(p.b, p.b_stride, this->column_, job_.columns, begin);
      left_ = depth(piece_++);
    }
    a_.copy(to.a, left_), b_.copy(to.b, left_);
    left_ -= kTileDepth;
  }

  // By way of shared memory, so that neighbours are written together.
  __device__ __forceinline__ void write(const TileSums<kRows>& total) const {
    float* const sums = tiles_[0].a;
    static_assert(sizeof(Tiles) * kStages >= sizeof(float) * kRows * kSumStride, "the sums are in the tiles");
    __syncthreads();
    total.store(sums);
    __syncthreads();
#pragma unroll 2
    for (int four = thread_; four < kRows * kTileColumns / 4; four += kTileThreads) {
      const int row = four / (kTileColumns / 4), column = four % (kTileColumns / 4) * 4;
      const float4 sum = *reinterpret_cast<const float4*>(sums + row * kSumStride + column);
      float values[4] = {sum.x, sum.y, sum.z, sum.w};
      this->write_four(row, column, values);
    }
  }

  Tiles* const tiles_;
  Operand<kRows, kA> a_;
  Operand<kTileColumns, kB> b_;
  int piece_ = 0, left_ = 0;  // of what is fetched: the next piece, and k left of the one before it
};

template <int kRows>
__device__ __forceinline__ void run_job(const ProductJob& job, Tiles* tiles) {
  switch (job.product) {
    case kForwardProduct:
      return JobProduct<kRows, true, true>(job, tiles).run();
    case kInputProduct:
      return JobProduct<kRows, true, false>(job, tiles).run();
    case kWeightProduct:
      return JobProduct<kRows, false, false>(job, tiles).run();
  }
}

}  // namespace
}  // namespace policy
}  // namespace exphil

// grid: the tiles of each part of each job, job after job.
extern "C" __global__ void __launch_bounds__(exphil::policy::kTileThreads, 3)
    policy_gradient_product_tensor(const __grid_constant__ exphil::policy::ProductJobs jobs) {
#if EXPHIL_TF32
  using namespace exphil::policy;
  exphil::device::take_turn();
  __shared__ __align__(16) Tiles tiles[kStages];
  if (jobs.tile_rows == kTileRows) {
    run_job<kTileRows>(job_of_block(jobs), tiles);
  } else {
    run_job<kLowTileRows>(job_of_block(jobs), tiles);
  }
#else
  (void)jobs;
#endif
}
