// Windows as a class, shared by the phases in policy/window.cu. A Window is one thread's view.
#pragma once

#include "kernels/policy/epilogues.cuh"
#include "kernels/policy/windows.cuh"

namespace exphil {
namespace policy {

constexpr WindowRowLayout kRowPart(kDims);

// This thread's part of x_proj for one row after another: sums over segments. Few weights are loaded once,
// before the row is there.
class XProjWeights {
 public:
  __device__ __forceinline__ XProjWeights(const void* x_proj, int thread)
      : weights_(static_cast<const Group*>(x_proj)) {
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

  // parts: {inner segments, projection}
  __device__ __forceinline__ void sum_segments(const float* u, float* parts, int thread) const {
#pragma unroll(kHold ? kEach : 1)
    for (int i = 0; i < kEach; ++i) {
      const int task = thread + i * kWindowThreads;
      if (task >= kTasks) continue;
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < kSegment / 4; ++j) {
        const float4 value = reinterpret_cast<const float4*>(u)[task / kProjection * (kSegment / 4) + j];
        sum = dot4(widen(kHold ? held_[kHold ? i : 0][j] : load(task, j)), value, sum);
      }
      parts[task] = sum;
    }
  }

 private:
  static constexpr int kTasks = (kInner / kSegment) * kProjection;
  static constexpr int kEach = divide_up(kTasks, kWindowThreads);
  static constexpr bool kHold = kEach <= 3;  // up to 96 registers

  __device__ __forceinline__ Group load(int task, int j) const {
    const int k = task / kProjection * (kSegment / 4) + j;
    return __ldg(weights_ + static_cast<long long>(k) * product_columns(kProjection) + task % kProjection);
  }

  const Group* const weights_;
  Group held_[kHold ? kEach : 1][kSegment / 4];
};

class Window : Windows<kWindowThreads> {
 public:
  __device__ __forceinline__ Window(const WindowArguments& args, const InlineFrame& frame, void* shared)
      : Windows<kWindowThreads>(args, frame), shared_(shared) {}

  __device__ __forceinline__ void run() {
    if (args_.fresh > 0) front();
#pragma unroll 1
    for (int l = 0; l < kLayers; ++l) {
      project_rows(l);
      barrier();
      advance_time(l, shared_);
      barrier();
      out_proj(l);
      barrier();
      if (l + 1 < kLayers) in_proj(l + 1);
    }
    head();
  }

 private:
  __device__ void copy_frames();
  __device__ void front();
  __device__ void project_rows(int layer);
  __device__ void out_proj(int layer);
  __device__ void in_proj(int layer);
  __device__ void head();
  template <int kDeep, class Sink>
  __device__ void deep_head(Sink sink);

  __device__ __forceinline__ void barrier() const {
    grid_barrier(args_.barrier);
  }
  // A product over columns [32 first, 32 (first + columns)) in tiles of kTile rows, spread over the blocks
  // from block `begin` on. Returns the number of tiles. Each use is compiled by itself: 16 rows take half a
  // second, so a product has tiles of one row and of many only where it may have one row or many.
  template <int kK, int kOutputs, class Epilogue, int kTile, class Sink>
  __device__ __forceinline__ int tiles(const ProductArguments& p, int first, int columns, int begin,
                                       Sink sink) const {
    auto& tile = *static_cast<FewTile<kK, kTile>*>(shared_);
    const int blocks = static_cast<int>(gridDim.x);
    const int count = columns * static_cast<int>((p.rows + kTile - 1) / kTile);
    for (int i = (static_cast<int>(blockIdx.x) + blocks - begin % blocks) % blocks; i < count; i += blocks) {
      __syncthreads();  // the memory of the tile before
      product_few_tile<kK, kOutputs, Epilogue, kTile>(p, tile, first + i % columns, i / columns, sink);
    }
    return count;
  }
  template <int kK, int kOutputs, class Epilogue, class Sink>
  __device__ __forceinline__ int multiply(const ProductArguments& p, int first, int columns, int begin,
                                          Sink sink) const {
    return tiles<kK, kOutputs, Epilogue, few_rows(kK)>(p, first, columns, begin, sink);
  }
  // For a row of each window.
  template <int kK, int kOutputs, class Epilogue, class Sink>
  __device__ __forceinline__ int multiply_lone(const ProductArguments& p, int first, int columns, int begin,
                                               Sink sink) const {
    return tiles<kK, kOutputs, Epilogue, 1>(p, first, columns, begin, sink);
  }
  // For the fresh frames.
  template <int kK, int kOutputs, class Epilogue, class Sink>
  __device__ __forceinline__ void multiply_any(const ProductArguments& p, Sink sink) const {
    constexpr int kTiles = divide_up(kOutputs, kFewColumns);
    if (p.rows <= kLoneRows) {
      multiply_lone<kK, kOutputs, Epilogue>(p, 0, kTiles, 0, sink);
    } else {
      multiply<kK, kOutputs, Epilogue>(p, 0, kTiles, 0, sink);
    }
  }

  __device__ __forceinline__ ProductArguments product(const float* x, long long x_stride, long long rows,
                                                      const ProductMatrix& matrix) const {
    ProductArguments p{};
    static_cast<ProductMatrix&>(p) = matrix;
    p.x = x, p.x_stride = x_stride, p.rows = rows;
    p.epsilon = args_.epsilon;
    return p;
  }

  void* const shared_;
};

}  // namespace policy
}  // namespace exphil
