// The last outputs of windows of one agent, in one launch: what policy/product.cu and policy/rows.cu do in a
// dozen kernels, with the same bits. For one window of 60 frames the launches and the gaps between the
// kernels cost more than the work. Blocks take the tiles of each phase in turn and wait for each other
// between the phases. Launched by c_src/cuda/policy/window.cpp, cooperatively; any power of two of blocks
// gives the same bits.
//
// Compiled with the dimensions only.
#include "kernels/policy/window.cuh"

namespace exphil {
namespace policy {

// Reads the frames over PCIe once; the tiles of the input projection would each read them again.
__device__ __forceinline__ void Window::copy_frames() {
  const int count = args_.fresh * (kInput / 4), stride = static_cast<int>(gridDim.x) * kWindowThreads;
  for (int i = static_cast<int>(blockIdx.x) * kWindowThreads + thread_; i < count; i += stride) {
    reinterpret_cast<float4*>(args_.obs)[i] = reinterpret_cast<const float4*>(args_.host_obs)[i];
  }
  barrier();
}

// The input projection and the first layer's in_proj of the fresh frames.
__device__ __forceinline__ void Window::front() {
  if (args_.host_obs != nullptr) copy_frames();
  ProductArguments p = product(obs_, kInput, args_.fresh, args_.input);
  multiply_any<kInput, kModel, BiasEpilogue>(
      p, [&](long long row, int column, float value) { put(args_.front_h, kModel, row, column, value); });
  barrier();
  const float* last = h_row(0, args_.count - 1, args_.seq);  // one row beyond
  p = product(last - static_cast<long long>(args_.fresh) * kModel, kModel, args_.fresh, args_.in_proj);
  multiply_any<kModel, 2 * kInner, InProjEpilogue>(p, [&](long long row, int column, float value) {
    put(args_.front_xz, 2 * kInner, row, column, value);
  });
}

// u, B, C and dt, a block for each row, after the product before it.
__device__ __forceinline__ void Window::project_rows(int layer) {
  float* const own_u = kRowPart.u.in(shared_);
  float* const parts = kRowPart.parts.in(shared_);
  float* const projection = kRowPart.projection.in(shared_);
  float* const dt_parts = kRowPart.dt_parts.in(shared_);
  const ProductMatrix matrix = of_layer(args_.x_proj, layer);
  const XProjWeights weights(matrix.weights, thread_);
  const float* const dt_bias = of_layer(args_.dt_bias, layer);
  barrier();
  const int warp = thread_ / 32, lane = thread_ % 32;
  for (long long row = blockIdx.x; row < rows_; row += gridDim.x) {
    const int window = static_cast<int>(row / args_.seq), step = static_cast<int>(row % args_.seq);
    const float* x = xz_row(layer, window, step);
    __syncthreads();
    for (int c = thread_; c < kInner; c += kWindowThreads) {
      float taps[kTaps];
#pragma unroll
      for (int t = 0; t < kTaps; ++t) {
        const int back = kHistory - t;
        taps[t] = back <= step ? x[c - static_cast<long long>(back) * 2 * kInner] : 0.0f;
      }
      const float u = convolve(taps, of_layer(args_.conv, layer) + c, kInner,
                               __ldg(of_layer(args_.conv_bias, layer) + c));
      own_u[c] = u;
      args_.u[row * kInner + c] = u;
    }
    __syncthreads();
    weights.sum_segments(own_u, parts, thread_);
    __syncthreads();
    for (int i = thread_; i < kProjection; i += kWindowThreads) {
      float sum = add_segments<kInner / kSegment>(parts + i, kProjection);
      sum = scaled(sum, matrix.row_scale, i);
      if constexpr (kForm.projection_bias) sum = __fadd_rn(sum, __ldg(matrix.bias + i));
      projection[i] = sum;
      args_.projection[row * kProjection + i] = sum;
    }
    __syncthreads();
    for (int s = warp; s < kInner / kSegment; s += kWindowThreads / 32) {
      const int c = s * kSegment + lane;
      const void* const dt_proj = of_layer(static_cast<const char*>(args_.dt_proj), layer);
      const float dt = activated_dt(dt_proj, kInner, dt_bias + kInner, projection, c, __ldg(dt_bias + c));
      args_.active_dt[row * kInner + c] = dt;
      if constexpr (kForm.mean_dt) {
        const float part = segment_of_dt(dt, c);
        if (lane == 0) dt_parts[s] = part;
      }
    }
    if constexpr (kForm.mean_dt) {
      __syncthreads();
      if (thread_ == 0) args_.active_dt[rows_ * kInner + row] = mean_of_dt(dt_parts);
    }
  }
}

// Adds the layer's output to its input; of the last layer for the last frames only.
__device__ __forceinline__ void Window::out_proj(int layer) {
  const bool last_only = layer + 1 == kLayers;
  const ProductArguments p =
      product(args_.y, kInner, last_only ? args_.count : rows_, of_layer(args_.out_proj, layer));
  const auto add = [&](float* to, long long row, int column, int window, int step, float value) {
    to[row * kModel + column] = __fadd_rn(value, h_row(layer, window, step)[column]);
  };
  if (last_only) {
    multiply_lone<kInner, kModel, BiasEpilogue>(
        p, 0, kModel / kFewColumns, 0, [&](long long row, int column, float value) {
          add(args_.last_h, row, column, static_cast<int>(row), args_.seq - 1, value);
        });
  } else {
    multiply<kInner, kModel, BiasEpilogue>(p, 0, kModel / kFewColumns, 0,
                                           [&](long long row, int column, float value) {
                                             add(args_.h, row, column, static_cast<int>(row / args_.seq),
                                                 static_cast<int>(row % args_.seq), value);
                                           });
  }
}

// Of the last layer, z is needed for the last frames only.
__device__ __forceinline__ void Window::in_proj(int layer) {
  constexpr int kHalf = kInner / kFewColumns;
  const bool last_only = layer + 1 == kLayers;
  const ProductMatrix matrix = of_layer(args_.in_proj, layer);
  const int seq = args_.seq;
  const int done = multiply<kModel, 2 * kInner, InProjEpilogue>(
      product(args_.h, kModel, rows_, matrix), 0, last_only ? kHalf : 2 * kHalf, 0,
      [&](long long row, int column, float value) { args_.xz[row * 2 * kInner + column] = value; });
  if (!last_only) return;
  multiply_lone<kModel, 2 * kInner, InProjEpilogue>(
      product(args_.h + static_cast<long long>(seq - 1) * kModel, static_cast<long long>(seq) * kModel,
              args_.count, matrix),
      kHalf, kHalf, done, [&](long long row, int column, float value) {
        args_.xz[(row * seq + seq - 1) * 2 * kInner + column] = value;
      });
}

// kDeep: the hidden values of the heads.
template <int kDeep, class Sink>
__device__ __forceinline__ void Window::deep_head(Sink sink) {
  if constexpr (kDeep > 0) {
    multiply_lone<kModel, kDeep, HeadEpilogue<true>>(
        product(args_.last_h, kModel, args_.count, args_.hidden_layer), 0, kDeep / kFewColumns, 0,
        [&](long long row, int column, float value) { args_.hidden[row * kDeep + column] = value; });
    barrier();
    multiply_lone<kDeep, kOutput, BiasEpilogue>(product(args_.hidden, kDeep, args_.count, args_.head), 0,
                                                divide_up(kOutput, kFewColumns), 0, sink);
  } else {
    multiply_lone<kModel, kOutput, HeadEpilogue<false>>(
        product(args_.last_h, kModel, args_.count, args_.head), 0, divide_up(kOutput, kFewColumns), 0, sink);
  }
}

__device__ __forceinline__ void Window::head() {
  const auto sink = [&](long long row, int column, float value) { store(row, column, value); };
  deep_head<kHidden>(sink);
}

}  // namespace policy
}  // namespace exphil

extern "C" __global__ void __launch_bounds__(exphil::policy::kWindowThreads)
    policy_window(const __grid_constant__ exphil::policy::WindowArguments args,
                  const __grid_constant__ exphil::policy::InlineFrame frame) {
  exphil::policy::Window(args, frame, exphil::policy::dynamic_shared()).run();
}
