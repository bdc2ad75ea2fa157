// The matrix products of a policy's gradient: the forward pass (X W^T), the gradient of a layer's input (dY
// W) and that of its weight (dY^T X, a sum over all rows). One kernel serves all three, because a tile in
// shared memory is the same whichever way its operand lies in memory. A launch runs several independent
// products. Launched by c_src/cuda/policy/gradient_kernels.cpp. Sizes are arguments, so one module serves
// every policy. policy/product_gradient_tensor.cu is the same on tensor cores.
//
// Every element is summed by one thread in the order of k, whatever the number of rows. A weight's gradient
// is summed in fixed parts of the rows; policy_gradient_sums adds the parts in order.
#include "kernels/policy/product_gradient_job.cuh"

namespace exphil {
namespace policy {
namespace {

// One step of k. The rows (or columns) of k are permuted by an XOR with group k / 4, so that the stores of an
// operand that lies along k have no bank conflicts.
struct Tiles {
  float a[2][kTileDepth][kTileRows];
  float b[2][kTileDepth][kTileColumns];
};
static_assert(kTileRows == 64 && kTileColumns == 64 && kTileDepth == 16 && kTileThreads == 128,
              "the indices below");

__device__ __forceinline__ int permuted(int i, int k) {
  return i ^ (k / 4 * 8);
}

// An operand of one piece: element (i, k) is at from[i i_stride + k k_stride]; zero outside. kCount: of i in
// a tile, 64 or 32.
template <int kCount>
class Operand {
 public:
  __device__ __forceinline__ Operand(const float* from, long long i_stride, long long k_stride,
                                     long long first, long long count, long long begin, long long end)
      : along_k_(k_stride == 1), left_in_k_(end - begin) {
    const int left = count - first < kCount ? static_cast<int>(count - first) : kCount;
    const long long other = along_k_ ? i_stride : k_stride;
    from += first * i_stride + begin * k_stride;
    vector_ = other % 4 == 0 && reinterpret_cast<unsigned long long>(from) % 16 == 0;
    step_ = kTileDepth * k_stride;
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      at_[j] = from + i_of(j) * i_stride + k_of(j) * k_stride;
      left_[j] = along_k_ ? (i_of(j) < left ? 4 : 0) : left - i_of(j);
    }
  }

  // This thread's elements of the next kTileDepth steps.
  __device__ __forceinline__ void fetch() {
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const long long more = left_in_k_ - k_of(j);
      const int existing = along_k_ ? (left_[j] == 0 ? 0
                                       : more < 4    ? static_cast<int>(more)
                                                     : 4)
                                    : (more > 0 ? left_[j] : 0);
      load(at_[j], existing, held_ + 4 * j);
      at_[j] += step_;
    }
    left_in_k_ -= kTileDepth;
  }

  __device__ __forceinline__ void put(float (*tile)[kTileRows]) const {
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const float* from = held_ + 4 * j;
      if (along_k_) {
        const int i = permuted(i_of(j), k_of(j));
#pragma unroll
        for (int c = 0; c < 4; ++c) tile[k_of(j) + c][i] = from[c];
      } else {
        *reinterpret_cast<float4*>(&tile[k_of(j)][permuted(i_of(j), k_of(j))]) =
            make_float4(from[0], from[1], from[2], from[3]);
      }
    }
  }

 private:
  static constexpr int kLoads = kCount / 32, kQuads = kCount / 4;

  // The first element of load j: four neighbours, along k or along i.
  __device__ __forceinline__ int i_of(int j) const {
    const int thread = static_cast<int>(threadIdx.x);
    return along_k_ ? thread / 4 + 32 * j : thread % kQuads * 4;
  }
  __device__ __forceinline__ int k_of(int j) const {
    const int thread = static_cast<int>(threadIdx.x);
    return along_k_ ? thread % 4 * 4 : thread / kQuads + kTileThreads / kQuads * j;
  }

  // Four neighbours, of which `count` exist.
  __device__ __forceinline__ void load(const float* from, int count, float* to) const {
    if (vector_ && count >= 4) {
      const float4 value = *reinterpret_cast<const float4*>(from);
      to[0] = value.x, to[1] = value.y, to[2] = value.z, to[3] = value.w;
      return;
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) to[c] = c < count ? from[c] : 0.0f;
  }

  const bool along_k_;
  bool vector_;
  long long left_in_k_, step_;
  const float* at_[kLoads];
  int left_[kLoads];
  float held_[4 * kLoads];
};

template <int kRows>
class JobProduct : JobTile<kRows> {
 public:
  __device__ __forceinline__ JobProduct(const ProductJob& job, Tiles& tiles)
      : JobTile<kRows>(job), tiles_(tiles) {}

  __device__ __forceinline__ void run() {
    float total[kPerThread][4] = {};
    float row_sum = 0.0f;
    for (int p = 0; p < job_.piece_count; ++p) piece(job_.pieces[p], total, &row_sum);
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) this->write_four(row_of(i), column_of(0), total[i]);
    this->write_row_sum(row_sum);
  }

 private:
  using JobTile<kRows>::job_;
  using JobTile<kRows>::thread_;
  static constexpr int kPerThread = kRows / 8;

  __device__ __forceinline__ void piece(const ProductPiece& p, float (&total)[kPerThread][4],
                                        float* row_sum) {
    const long long begin = this->part_ * job_.part_depth;
    const long long end = p.depth - begin < job_.part_depth ? p.depth : begin + job_.part_depth;
    const bool a_along_k = job_.product != kWeightProduct, b_along_k = job_.product == kForwardProduct;
    Operand<kRows> a(p.a, a_along_k ? p.a_stride : 1, a_along_k ? 1 : p.a_stride, this->row_, job_.rows,
                     begin, end);
    Operand<kTileColumns> b(p.b, b_along_k ? p.b_stride : 1, b_along_k ? 1 : p.b_stride, this->column_,
                            job_.columns, begin, end);
    int buffer = 0;
    a.fetch(), b.fetch();
    a.put(tiles_.a[0]), b.put(tiles_.b[0]);
    __syncthreads();
#pragma unroll 1
    for (long long k = begin; k < end; k += kTileDepth) {
      const bool more = k + kTileDepth < end;
      if (more) a.fetch(), b.fetch();
      accumulate(tiles_.a[buffer], tiles_.b[buffer], total);
      if (this->sums_rows()) {
        for (int i = 0; i < kTileDepth; ++i) {
          *row_sum = __fadd_rn(*row_sum, tiles_.a[buffer][i][permuted(thread_, i)]);
        }
      }
      buffer ^= 1;
      if (more) a.put(tiles_.a[buffer]), b.put(tiles_.b[buffer]);
      __syncthreads();
    }
  }

  // Rows 4 y .. 4 y + 3 and, of 64, 32 more; columns 4 x .. 4 x + 3.
  __device__ __forceinline__ int row_of(int i) const {
    return thread_ / 16 * 4 + i % 4 + i / 4 * 32;
  }
  __device__ __forceinline__ int column_of(int j) const {
    return thread_ % 16 * 4 + j;
  }

  __device__ __forceinline__ void accumulate(const float (*a)[kTileRows], const float (*b)[kTileColumns],
                                             float (&total)[kPerThread][4]) const {
#pragma unroll
    for (int k = 0; k < kTileDepth; ++k) {
      const float4 b0 = *reinterpret_cast<const float4*>(&b[k][permuted(column_of(0), k)]);
      float left[kPerThread];
#pragma unroll
      for (int i = 0; i < kPerThread; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(&a[k][permuted(row_of(i), k)]);
        left[i] = four.x, left[i + 1] = four.y, left[i + 2] = four.z, left[i + 3] = four.w;
      }
      const float right[4] = {b0.x, b0.y, b0.z, b0.w};
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) total[i][j] = __fmaf_rn(left[i], right[j], total[i][j]);
      }
    }
  }

  Tiles& tiles_;
};

}  // namespace
}  // namespace policy
}  // namespace exphil

// grid: the tiles of each part of each job, job after job.
extern "C" __global__ void __launch_bounds__(exphil::policy::kTileThreads, 4)
    policy_gradient_product(const __grid_constant__ exphil::policy::ProductJobs jobs) {
  using namespace exphil::policy;
  exphil::device::take_turn();
  __shared__ __align__(16) Tiles tiles;
  if (jobs.tile_rows == kTileRows) {
    JobProduct<kTileRows>(job_of_block(jobs), tiles).run();
  } else {
    JobProduct<kLowTileRows>(job_of_block(jobs), tiles).run();
  }
}
