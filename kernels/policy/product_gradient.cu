// The matrix products of a policy's gradient: the forward pass (X W^T), the gradient of a layer's input (dY
// W) and that of its weight (dY^T X, a sum over all rows). One kernel serves all three, because a tile in
// shared memory is the same whichever way its operand lies in memory. A launch runs several independent
// products. Launched by c_src/cuda/policy/gradient_kernels.cpp. Sizes are arguments, so one module serves
// every policy.
//
// Every element is summed by one thread in the order of k, whatever the number of rows. A weight's gradient
// is summed in fixed parts of the rows; policy_gradient_sums adds the parts in order.
#include "kernels/policy/gradient_arguments.cuh"

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

// An operand of one piece: element (i, k) is at from[i i_stride + k k_stride]; zero outside.
class Operand {
 public:
  __device__ __forceinline__ Operand(const float* from, long long i_stride, long long k_stride,
                                     long long first, long long count)
      : from_(from + first * i_stride),
        i_stride_(i_stride),
        k_stride_(k_stride),
        left_(count - first < kTileRows ? static_cast<int>(count - first) : kTileRows),
        along_k_(k_stride == 1) {
    const long long other = along_k_ ? i_stride : k_stride;
    vector_ = other % 4 == 0 && reinterpret_cast<unsigned long long>(from_) % 16 == 0;
  }

  // This thread's 8 elements of the steps [k, k + kTileDepth), those before `end`.
  __device__ __forceinline__ void fetch(long long k, long long end) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float* to = held_ + 4 * j;
      if (along_k_) {
        const int i = thread() / 4 + 32 * j;
        const long long at = k + thread() % 4 * 4;
        load(from_ + i * i_stride_ + at, i < left_ ? end - at : 0, to);
      } else {
        const int i = thread() % 16 * 4;
        const long long at = k + thread() / 16 + 8 * j;
        load(from_ + at * k_stride_ + i, at < end ? left_ - i : 0, to);
      }
    }
  }

  __device__ __forceinline__ void put(float (*tile)[kTileRows]) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float* from = held_ + 4 * j;
      if (along_k_) {
        const int i = permuted(thread() / 4 + 32 * j, thread() % 4 * 4);
#pragma unroll
        for (int c = 0; c < 4; ++c) tile[thread() % 4 * 4 + c][i] = from[c];
      } else {
        const int k = thread() / 16 + 8 * j;
        *reinterpret_cast<float4*>(&tile[k][permuted(thread() % 16 * 4, k)]) =
            make_float4(from[0], from[1], from[2], from[3]);
      }
    }
  }

 private:
  static __device__ __forceinline__ int thread() {
    return static_cast<int>(threadIdx.x);
  }

  // Four neighbours, of which `count` exist.
  __device__ __forceinline__ void load(const float* from, long long count, float* to) const {
    if (vector_ && count >= 4) {
      const float4 value = __ldg(reinterpret_cast<const float4*>(from));
      to[0] = value.x, to[1] = value.y, to[2] = value.z, to[3] = value.w;
      return;
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) to[c] = c < count ? __ldg(from + c) : 0.0f;
  }

  const float* from_;
  const long long i_stride_, k_stride_;
  const int left_;
  const bool along_k_;
  bool vector_;
  float held_[8];
};

class JobProduct {
 public:
  __device__ __forceinline__ JobProduct(const ProductJob& job, Tiles& tiles)
      : job_(job), tiles_(tiles), thread_(static_cast<int>(threadIdx.x)) {
    const long long block = blockIdx.x - job.first_block;
    const int across = (job.columns + kTileColumns - 1) / kTileColumns;
    const long long down = (job.rows + kTileRows - 1) / kTileRows;
    column_ = static_cast<int>(block % across) * kTileColumns;
    row_ = block / across % down * kTileRows;
    part_ = static_cast<int>(block / (across * down));
  }

  __device__ __forceinline__ void run() {
    float total[8][4] = {};
    float row_sum = 0.0f;
    for (int p = 0; p < job_.piece_count; ++p) piece(job_.pieces[p], total, &row_sum);
    write(total);
    if (sums_rows() && row_ + thread_ < job_.rows) {
      job_.row_sums[part_ * job_.rows + row_ + thread_] = row_sum;
    }
  }

 private:
  __device__ __forceinline__ bool sums_rows() const {
    return job_.row_sums != nullptr && column_ == 0 && thread_ < kTileRows;
  }

  __device__ __forceinline__ void piece(const ProductPiece& p, float (&total)[8][4], float* row_sum) {
    const long long begin = part_ * job_.part_depth;
    const long long end = p.depth - begin < job_.part_depth ? p.depth : begin + job_.part_depth;
    Operand a(p.a, p.a_row, p.a_k, row_, job_.rows), b(p.b, p.b_column, p.b_k, column_, job_.columns);
    int buffer = 0;
    a.fetch(begin, end), b.fetch(begin, end);
    a.put(tiles_.a[0]), b.put(tiles_.b[0]);
    __syncthreads();
#pragma unroll 1
    for (long long k = begin; k < end; k += kTileDepth) {
      const bool more = k + kTileDepth < end;
      if (more) a.fetch(k + kTileDepth, end), b.fetch(k + kTileDepth, end);
      accumulate(tiles_.a[buffer], tiles_.b[buffer], total);
      if (sums_rows()) {
        for (int i = 0; i < kTileDepth; ++i) {
          *row_sum = __fadd_rn(*row_sum, tiles_.a[buffer][i][permuted(thread_, i)]);
        }
      }
      buffer ^= 1;
      if (more) a.put(tiles_.a[buffer]), b.put(tiles_.b[buffer]);
      __syncthreads();
    }
  }

  // Rows 4 y .. 4 y + 3 and 32 more; columns 4 x .. 4 x + 3.
  __device__ __forceinline__ int row_of(int i) const {
    return thread_ / 16 * 4 + i % 4 + i / 4 * 32;
  }
  __device__ __forceinline__ int column_of(int j) const {
    return thread_ % 16 * 4 + j;
  }

  __device__ __forceinline__ void accumulate(const float (*a)[kTileRows], const float (*b)[kTileColumns],
                                             float (&total)[8][4]) const {
#pragma unroll
    for (int k = 0; k < kTileDepth; ++k) {
      const float4 a0 = *reinterpret_cast<const float4*>(&a[k][permuted(row_of(0), k)]);
      const float4 a1 = *reinterpret_cast<const float4*>(&a[k][permuted(row_of(4), k)]);
      const float4 b0 = *reinterpret_cast<const float4*>(&b[k][permuted(column_of(0), k)]);
      const float left[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
      const float right[4] = {b0.x, b0.y, b0.z, b0.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) total[i][j] = __fmaf_rn(left[i], right[j], total[i][j]);
      }
    }
  }

  __device__ __forceinline__ float finished(float value, long long row, int column) const {
    if (job_.bias != nullptr) value = __fadd_rn(value, __ldg(job_.bias + column));
    if (job_.after == kRelu) return fmaxf(value, 0.0f);
    if (job_.after == kStore) return value;
    const float other = job_.other[row * job_.other_row + column];
    if (job_.after == kAdd) return __fadd_rn(value, other);
    return other > 0.0f ? value : 0.0f;
  }

  __device__ __forceinline__ void write(const float (&total)[8][4]) const {
    float* const out = job_.out + part_ * job_.out_part;
    const bool vector = job_.out_row % 4 == 0 && job_.out_part % 4 == 0 &&
                        reinterpret_cast<unsigned long long>(job_.out) % 16 == 0;
    const int column = column_ + column_of(0);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const long long row = row_ + row_of(i);
      if (row >= job_.rows) continue;
      float* const to = out + row * job_.out_row + column;
      float value[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        value[j] = column + j < job_.columns ? finished(total[i][j], row, column + j) : 0.0f;
      }
      if (vector && column + 4 <= job_.columns) {
        *reinterpret_cast<float4*>(to) = make_float4(value[0], value[1], value[2], value[3]);
        continue;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (column + j < job_.columns) to[j] = value[j];
      }
    }
  }

  const ProductJob& job_;
  Tiles& tiles_;
  const int thread_;
  long long row_;
  int column_, part_;
};

}  // namespace
}  // namespace policy
}  // namespace exphil

// grid: the tiles of each part of each job, job after job.
extern "C" __global__ void __launch_bounds__(exphil::policy::kTileThreads, 4)
    policy_gradient_product(const __grid_constant__ exphil::policy::ProductJobs jobs) {
  __shared__ __align__(16) exphil::policy::Tiles tiles;
  int job = 0;
  while (job + 1 < jobs.count && blockIdx.x >= jobs.jobs[job + 1].first_block) ++job;
  exphil::policy::JobProduct(jobs.jobs[job], tiles).run();
}
