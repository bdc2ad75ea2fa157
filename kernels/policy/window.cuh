// Windows as a class, shared by the phases in policy/window.cu. A Window is one thread's view.
#pragma once

#include "kernels/policy/product.cuh"
#include "kernels/policy/windows.cuh"

namespace exphil {
namespace policy {

constexpr WindowRowLayout kRowPart(kNetwork, kWindow);

// What completes the sums of a product in tiles. What the closing product adds to is added where its values
// go.
template <int kProduct>
struct WindowEpilogue : PhaseProduct<kProduct> {
  using Phase = PhaseProduct<kProduct>;
  static __device__ __forceinline__ float residual(const ProductArguments&, long long, int) { return 0.0f; }
  static __device__ __forceinline__ float apply(float sum, float bias, float scale, float, int column) {
    return activated_column<kProduct>(Phase::kNormed ? __fmaf_rn(sum, scale, bias) : __fadd_rn(sum, bias),
                                      column);
  }
};

// This thread's part of a product of rows for one row after another: sums over segments. Few weights are
// loaded once, before the row is there.
template <int kProduct>
class RowWeights {
 public:
  __device__ __forceinline__ RowWeights(const void* weights, int thread)
      : weights_(static_cast<const Group*>(weights)) {
    if constexpr (kHold) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kSegment / 4; ++j) {
          const int task = thread + i * kWindowThreads;
          if (task < kTasks) held_[i][j] = load(task, j);
        }
      }
    }
  }

  // parts: {segments, rows of the product}
  __device__ __forceinline__ void sum_segments(const float* x, float* parts, int thread) const {
#pragma unroll(kHold ? kEach : 1)
    for (int i = 0; i < kEach; ++i) {
      const int task = thread + i * kWindowThreads;
      if (task >= kTasks) continue;
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < kSegment / 4; ++j) {
        const float4 value = reinterpret_cast<const float4*>(x)[task / kOutputs * (kSegment / 4) + j];
        sum = dot4(widen(kHold ? held_[kHold ? i : 0][j] : load(task, j)), value, sum);
      }
      parts[task] = sum;
    }
  }

 private:
  static constexpr int kOutputs = kNetwork.rows(kNetwork.products[kProduct]);
  static constexpr int kTasks = (size_of(kNetwork.products[kProduct].in) / kSegment) * kOutputs;
  static constexpr int kEach = divide_up(kTasks, kWindowThreads);
  static constexpr bool kHold = kEach <= 3;  // up to 96 registers

  __device__ __forceinline__ Group load(int task, int j) const {
    const int k = task / kOutputs * (kSegment / 4) + j;
    return __ldg(weights_ + static_cast<long long>(k) * product_columns(kOutputs) + task % kOutputs);
  }

  const Group* const weights_;
  Group held_[kHold ? kEach : 1][kSegment / 4];
};
// Where a layer has no such product.
template <>
class RowWeights<-1> {
 public:
  __device__ __forceinline__ RowWeights(const void*, int) {}
};

// The first long product of rows, whose weights are loaded before the rows are there; 0: none.
constexpr int held_phase() {
  for (int i = 1; i < kWindow.rows_end; ++i) {
    const int product = kind_at(Kind::product, i);
    if (product >= 0 && !kNetwork.products[product].is_short) return i;
  }
  return 0;
}
constexpr int kHeldPhase = held_phase();
using HeldWeights = RowWeights<kHeldPhase == 0 ? -1 : kNetwork.layer.phases[kHeldPhase].index>;

class Window : Windows<kWindowThreads> {
 public:
  __device__ __forceinline__ Window(const WindowArguments& args, const InlineFrame& frame, void* shared)
      : Windows<kWindowThreads>(args, frame), shared_(shared) {}

  __device__ __forceinline__ void run() {
    if (args_.fresh > 0) front();
#pragma unroll 1
    for (int l = 0; l < kLayerCount; ++l) {
      if (l > 0 || args_.fresh > 0) leading(l);
      row_phases(l);
      barrier();
      advance_time(l, shared_);
      barrier();
      closing(l);
      barrier();
    }
    output();
  }

 private:
  // One row of a window.
  struct Row {
    int layer, window, step;
    long long at;
  };

  __device__ void copy_frames();
  __device__ void front();
  __device__ void row_phases(int layer);
  template <int kAt>
  __device__ void row_phase(const Row& row, const HeldWeights& held);
  template <int kConvolution, int kAt>
  __device__ void convolve_row(const Row& row);
  template <int kProduct, int kAt, class Weights>
  __device__ void multiply_row(const Row& row, const Weights& columns);
  template <int kProduct, int kAt>
  __device__ void multiply_short(const Row& row);
  template <int kProduct, int kAt, int kOut>
  __device__ void short_output(const Row& row);
  template <int kMean>
  __device__ void mean_of_row(const Row& row);
  __device__ void closing(int layer);
  __device__ void leading(int layer);
  __device__ void output();

  __device__ __forceinline__ void barrier() const {
    grid_barrier(args_.barrier);
  }
  template <int kVector>
  __device__ __forceinline__ float* shared_vector() const {
    constexpr WindowVector kAt = kWindow.vectors[kVector];
    return kRowPart.vectors[kAt.first].in(shared_) + kAt.at;
  }

  // A product over columns [32 first, 32 (first + columns)) in tiles of kTile rows, spread over the blocks
  // from block `begin` on. Returns the number of tiles. Each use is compiled by itself: 16 rows take half a
  // second, so a product has tiles of one row and of many only where it may have one row or many.
  template <int kProduct, int kTile, class Sink>
  __device__ __forceinline__ int tiles(const ProductArguments& p, int first, int columns, int begin,
                                       Sink sink) const {
    constexpr int kK = size_of(kNetwork.products[kProduct].in);
    constexpr int kOutputs = kNetwork.rows(kNetwork.products[kProduct]);
    auto& tile = *static_cast<FewTile<kK, kTile>*>(shared_);
    const int blocks = static_cast<int>(gridDim.x);
    const int count = columns * static_cast<int>((p.rows + kTile - 1) / kTile);
    for (int i = (static_cast<int>(blockIdx.x) + blocks - begin % blocks) % blocks; i < count; i += blocks) {
      __syncthreads();  // the memory of the tile before
      product_few_tile<kK, kOutputs, WindowEpilogue<kProduct>, kTile, kWindowThreads>(
          p, tile, first + i % columns, i / columns,
          [&](auto& xs) { load_rows<kWindowThreads>(p, static_cast<long long>(i / columns) * kTile, xs); },
          sink);
    }
    return count;
  }
  template <int kProduct, class Sink>
  __device__ __forceinline__ int multiply(const ProductArguments& p, int first, int columns, int begin,
                                          Sink sink) const {
    return tiles<kProduct, few_rows(size_of(kNetwork.products[kProduct].in))>(p, first, columns, begin, sink);
  }
  // For a row of each window.
  template <int kProduct, class Sink>
  __device__ __forceinline__ int multiply_lone(const ProductArguments& p, int first, int columns, int begin,
                                               Sink sink) const {
    return tiles<kProduct, 1>(p, first, columns, begin, sink);
  }

  template <int kProduct>
  __device__ __forceinline__ ProductArguments product(const float* x, long long x_stride, long long rows,
                                                      const ProductMatrix& matrix) const {
    ProductArguments p{};
    static_cast<ProductMatrix&>(p) = matrix;
    p.x = x, p.x_stride = x_stride, p.rows = rows;
    p.epsilon = __uint_as_float(kNetwork.products[kProduct].epsilon);
    return p;
  }

  void* const shared_;
};

}  // namespace policy
}  // namespace exphil
