// The products of policy/product_gradient.cu by warpgroups (common/warpgroup.cuh), for devices that have
// them, with the products of policy/product_gradient_tensor.cu: three of tf32, whose sums are 16 long.
// Operands are copied some steps ahead. Each thread splits what it multiplies of A, and a part of B, which it
// puts where the tensor cores read it, while they compute the step before.
//
// The threads of a block are STRANDS warpgroups (-D), each with sums of its own, which take the steps of k in
// turn; their sums are added in their order. Every element is summed in an order of k that is the same
// whatever the number of rows.
#include "kernels/common/cluster.cuh"
#include "kernels/common/warpgroup.cuh"
#include "kernels/policy/product_gradient_copies.cuh"
#include "kernels/policy/product_gradient_job.cuh"

#if EXPHIL_WARPGROUPS

namespace exphil {
namespace policy {
namespace {

static_assert(kTileRows == device::kWarpgroupRows && kTileThreads == device::kWarpgroup &&
                  kTileColumns == 64 && kTileDepth == 16,
              "the indices below");

// A step of B, split: groups [c][column] of four slots, of which slot s is k = 4 s + c.
struct SplitTile {
  float4 high[kTileDepth / 4][kTileColumns], low[kTileDepth / 4][kTileColumns];
};
constexpr int kStages = 4;
struct StrandShared {
  SplitTile split[2];  // the products under way read one of them
  Copied steps[kStages];
};
static_assert(sizeof(StrandShared) == wide_product_shared(1), "as the host launches it");
static_assert(sizeof(StrandShared) >= sizeof(float) * kTileRows * kWideSumStride, "the sums take its place");

// kA, kB: whether the operands lie along k.
template <bool kA, bool kB>
class JobProduct : JobTile<kTileRows> {
 public:
  // shared: {STRANDS}.
  __device__ __forceinline__ JobProduct(const ProductJob& job, StrandShared* shared)
      : JobTile<kTileRows>(job), all_(shared), shared_(shared[strand()]) {}

  __device__ __forceinline__ void run() {
    int steps = 0;
    for (int p = 0; p < job_.piece_count; ++p) steps += steps_of(depth(p));
    steps = (steps - strand() + STRANDS - 1) / STRANDS;
#pragma unroll 1
    for (int step = 1 - kStages;; ++step) {
      if (step >= 0) {
        device::wait_copies<kStages - 2>();
        strand_sync();
        const Copied& copied = shared_.steps[static_cast<unsigned>(step) % kStages];
        begin(shared_.split[static_cast<unsigned>(step + 1) % 2]);  // of the step before; of none at first
        put_b(copied.b, shared_.split[static_cast<unsigned>(step) % 2]);
        device::publish_wide();
        float rows[2][4];
        take_a(copied.a, rows);
        device::await_wide(sums_);
        if (step > 0) add();
        if (step == steps) break;
        split_a(rows);
      }
      go_on();
      Copied& to = shared_.steps[static_cast<unsigned>(step + kStages - 1) % kStages];
      a_.copy(left_, to.a), b_.copy(left_, to.b);
      device::commit_copies();
    }
    write();
    if constexpr (!kA) write_row_sums();
  }

 private:
  static constexpr int kSums = 32;

  __device__ __forceinline__ static int lane() {
    return own_thread() % 32;
  }
  __device__ __forceinline__ static int first_row() {
    return own_thread() / 32 * 16;
  }
  __device__ __forceinline__ static int steps_of(int depth) {
    return (depth + kTileDepth - 1) / kTileDepth;
  }
  // Of this block's part of piece p.
  __device__ __forceinline__ int depth(int p) const {
    const long long left = job_.pieces[p].depth - part_ * job_.part_depth;
    return static_cast<int>(left < job_.part_depth ? left : job_.part_depth);
  }

  // To the strand's next step, of one piece after another.
  __device__ __forceinline__ void go_on() {
    if (left_ > kTileDepth * ahead_) {
      a_.skip(ahead_), b_.skip(ahead_);
      left_ -= kTileDepth * ahead_;
    } else {
      find_piece();
    }
    ahead_ = STRANDS;
  }
  __device__ __forceinline__ void find_piece() {
    int ahead = ahead_ - steps_of(left_);
    for (;; ahead -= steps_of(left_)) {
      left_ = 0;
      if (piece_ == job_.piece_count) return;
      left_ = depth(piece_++);
      if (steps_of(left_) > ahead) break;
    }
    const ProductPiece& p = job_.pieces[piece_ - 1];
    const long long begin = part_ * job_.part_depth;
    if constexpr (kA) {
      const long long row = row_ + first_row() + lane() / 4;
      a_.begin(p.a, p.a_stride, job_.rows, begin, row, row + 8, lane() % 4 * 4);
    } else {
      a_.begin(p.a, p.a_stride, job_.rows, begin, row_);
    }
    if constexpr (kB) {
      const int column = column_ + own_thread() / 4;
      b_.begin(p.b, p.b_stride, job_.columns, begin, column, column + 32, own_thread() % 4 * 4);
    } else {
      b_.begin(p.b, p.b_stride, job_.columns, begin, column_);
    }
    a_.skip(ahead), b_.skip(ahead);
    left_ -= kTileDepth * ahead;
  }

  // Of A a lane has k = 4 q + c of its rows, q = lane % 4, which are slot q of group c.
  __device__ __forceinline__ static void take_a(const float* copied, float (&rows)[2][4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (kA) {
        AlongK::take(copied, i, rows[i]);
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          rows[i][c] = copied[AcrossK::place(first_row() + lane() / 4 + 8 * i, lane() % 4 * 4 + c)];
        }
      }
    }
  }
  __device__ __forceinline__ void split_a(const float (&rows)[2][4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      x_[i] = device::wide_rows(rows[0][2 * i], rows[1][2 * i], rows[0][2 * i + 1], rows[1][2 * i + 1]);
    }
    if constexpr (!kA) {
      if (!sums_rows_of_tile()) return;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int c = 0; c < 4; ++c) row_sums_[half] = __fadd_rn(row_sums_[half], rows[half][c]);
      }
    }
  }
  // Neither way do the stores of a warp meet a bank twice.
  __device__ __forceinline__ static void put_b(const float* copied, SplitTile& to) {
    const int t = own_thread();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = kB ? 32 * i + t / 4 : t % kTileColumns,
                number = kB ? t % 4 : 2 * i + t / kTileColumns;
      float values[4], high[4], low[4];
      if constexpr (kB) {
        AlongK::take(copied, i, values);
      } else {
#pragma unroll
        for (int slot = 0; slot < 4; ++slot) values[slot] = copied[AcrossK::place(column, 4 * slot + number)];
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        unsigned first, rest;
        device::split_tf32<0x1000>(values[j], &first, &rest);
        high[j] = __uint_as_float(first), low[j] = __uint_as_float(rest);
      }
      if constexpr (kB) {  // slot `number` of each group
#pragma unroll
        for (int group = 0; group < 4; ++group) {
          reinterpret_cast<float*>(&to.high[group][column])[number] = high[group];
          reinterpret_cast<float*>(&to.low[group][column])[number] = low[group];
        }
      } else {  // all slots of group `number`
        to.high[number][column] = make_float4(high[0], high[1], high[2], high[3]);
        to.low[number][column] = make_float4(low[0], low[1], low[2], low[3]);
      }
    }
  }

  // The products of x_ and B, from zero.
  __device__ __forceinline__ void begin(const SplitTile& b) {
    const device::WideWeights<kTileColumns> high(&b.high[0][0]), low(&b.low[0][0]);
    device::begin_segment_wide(x_, high, low, 0, sums_);
  }
  __device__ __forceinline__ void add() {
#pragma unroll
    for (int i = 0; i < kSums; ++i) total_[i] = __fadd_rn(total_[i], sums_[0][i]);
  }

  // By way of shared memory, so that neighbours are written together.
  __device__ __forceinline__ void write() const {
    device::copies_done();  // of the zeros behind the last step
    __syncthreads();
    float* const own = sums_of(strand());
#pragma unroll
    for (int i = 0; i < kSums; i += 2) {
      const int row = first_row() + device::wide_row(lane(), i), column = device::wide_column(lane(), i);
      *reinterpret_cast<float2*>(own + row * kWideSumStride + column) = make_float2(total_[i], total_[i + 1]);
    }
    __syncthreads();
#pragma unroll 2
    for (int four = thread_; four < kTileRows * kTileColumns / 4; four += STRANDS * kTileThreads) {
      const int row = four / (kTileColumns / 4), column = four % (kTileColumns / 4) * 4;
      float values[4];
#pragma unroll
      for (int strand = 0; strand < STRANDS; ++strand) {
        const float4 sum = *reinterpret_cast<const float4*>(sums_of(strand) + row * kWideSumStride + column);
        const float of[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) values[j] = strand == 0 ? of[j] : __fadd_rn(values[j], of[j]);
      }
      write_four(row, column, values);
    }
  }

  __device__ __forceinline__ float* sums_of(int strand) const {
    return reinterpret_cast<float*>(all_ + strand);
  }

  // The sum over k of each row of A, in the blocks of the first columns.
  __device__ __forceinline__ bool sums_rows_of_tile() const {
    return job_.row_sums != nullptr && column_ == 0;
  }
  __device__ __forceinline__ void write_row_sums() const {
    if (!sums_rows_of_tile()) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = row_sums_[half];
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
      const long long row = row_ + first_row() + lane() / 4 + 8 * half;
      if (lane() % 4 == 0 && row < job_.rows) job_.row_sums[part_ * job_.rows + row] = sum;
    }
  }

  StrandShared* const all_;
  StrandShared& shared_;
  typename CopiesOf<kA>::Type a_;
  typename CopiesOf<kB>::Type b_;
  // The next piece, k left of the one before it from the step on, and steps to the strand's next one.
  int piece_ = 0, left_ = 0, ahead_ = strand();
  device::WideRows x_[2] = {};
  float sums_[1][kSums] = {}, total_[kSums] = {};
  float row_sums_[2] = {};
};

__device__ __forceinline__ void run_job(const ProductJob& job, StrandShared* shared) {
  switch (job.product) {
    case kForwardProduct:
      return JobProduct<true, true>(job, shared).run();
    case kInputProduct:
      return JobProduct<true, false>(job, shared).run();
    case kWeightProduct:  // whose parts are blocks
      if constexpr (STRANDS == 1) JobProduct<false, false>(job, shared).run();
  }
}

}  // namespace
}  // namespace policy
}  // namespace exphil

#endif

// grid: the tiles of each part of each job, job after job. Dynamic shared memory: wide_product_shared().
extern "C" __global__ void __launch_bounds__(exphil::policy::kTileThreads* STRANDS, 4 / STRANDS)
    policy_gradient_product_wide(const __grid_constant__ exphil::policy::ProductJobs jobs) {
#if EXPHIL_WARPGROUPS
  using namespace exphil::policy;
  exphil::device::take_turn();
  float* const shared = exphil::device::launder_shared(exphil::device::dynamic_shared());
  run_job(job_of_block(jobs), reinterpret_cast<StrandShared*>(shared));
#else
  (void)jobs;
#endif
}
