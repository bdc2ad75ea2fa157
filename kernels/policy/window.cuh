// Windows as a class, shared by the phases in policy/window.cu. A Window is one thread's view.
#pragma once

#include "kernels/policy/barrier.cuh"
#include "kernels/policy/product.cuh"
#include "kernels/policy/window_layout.cuh"

namespace exphil {
namespace policy {

constexpr WindowRowLayout kRowPart(kDims);
constexpr int kTimeSteps = window_steps(kDims), kTimeChannels = window_channels(kDims);
constexpr WindowTimeLayout kTimePart(kDims, kTimeSteps);
// Whole warps, because the lanes of a channel exchange values; those beyond the last channel repeat it.
constexpr int kTimeThreads = round_up(kTimeChannels * kLanes, 32);
static_assert(kTimeThreads <= kWindowThreads, "threads of the state update");

constexpr bool kInlineFrame = kInput <= kMostInlineObs;
struct alignas(16) InlineFrame {
  float v[kInlineFrame ? kInput : 4];
};

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

class Window {
 public:
  __device__ __forceinline__ Window(const WindowArguments& args, const InlineFrame& frame, void* shared)
      : args_(args),
        obs_(kInlineFrame && args.obs == nullptr ? frame.v : args.obs),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        rows_(static_cast<long long>(args.count) * args.seq) {}

  __device__ __forceinline__ void run() {
    if (args_.fresh > 0) front();
#pragma unroll 1
    for (int l = 0; l < kLayers; ++l) {
      project_rows(l);
      barrier();
      advance_time(l);
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
  __device__ void advance_time(int layer);
  __device__ void out_proj(int layer);
  __device__ void in_proj(int layer);
  __device__ void head();

  __device__ __forceinline__ void barrier() const {
    block_barrier(args_.barrier, gridDim.x);
  }
  template <class T>
  __device__ __forceinline__ const T* of_layer(const T* first, int layer) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + layer * args_.layer_stride);
  }
  __device__ __forceinline__ ProductMatrix of_layer(const ProductMatrix& first, int layer) const {
    const char* const weights = static_cast<const char*>(first.weights);
    return {weights + layer * args_.layer_stride, of_layer(first.bias, layer),
            of_layer(first.row_scale, layer), of_layer(first.row_sums, layer)};
  }

  // Where frame `step` of a window is: for the first layer in front, after it in h and xz.
  __device__ __forceinline__ long long row_of(int layer, int window, int step) const {
    return layer == 0 ? static_cast<long long>(args_.first) + window * args_.front_step + step
                      : static_cast<long long>(window) * args_.seq + step;
  }
  __device__ __forceinline__ const float* h_row(int layer, int window, int step) const {
    return (layer == 0 ? args_.front_h : args_.h) + row_of(layer, window, step) * kModel;
  }
  __device__ __forceinline__ const float* xz_row(int layer, int window, int step) const {
    return (layer == 0 ? args_.front_xz : args_.xz) + row_of(layer, window, step) * 2 * kInner;
  }

  // One value of a fresh frame's row.
  __device__ __forceinline__ void put(float* front, int width, long long row, int column, float value) const {
    const long long last = static_cast<long long>(args_.count - 1) * args_.front_step + args_.seq;
    const long long place = args_.first + last - args_.fresh + row;
    front[place * width + column] = value;
    if (args_.slots == 0) return;
    front[(place < args_.slots ? place + args_.slots : place - args_.slots) * width + column] = value;
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

  // A value of the last outputs, with the number of the launch.
  __device__ __forceinline__ void store(long long row, int column, float value) const {
    const unsigned long long word =
        static_cast<unsigned long long>(args_.sequence) << 32 | __float_as_uint(value);
    store_system(args_.tagged + row * kOutput + column, word);
  }

  const WindowArguments& args_;
  const float* const obs_;
  void* const shared_;
  const int thread_;
  const long long rows_;
};

}  // namespace policy
}  // namespace exphil
