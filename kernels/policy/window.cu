// The last outputs of windows of one agent, in one launch: what policy/product.cu and policy/rows.cu do in a
// dozen kernels, with the same bits. For one window of 60 frames the launches and the gaps between the
// kernels cost more than the work. Blocks take the tiles of each phase in turn and wait for each other
// between the phases. Launched by c_src/cuda/policy/window.cpp, cooperatively; any power of two of blocks
// gives the same bits.
//
// Compiled with the network only.
#include "kernels/policy/window.cuh"

namespace exphil {
namespace policy {

// Reads the frames over PCIe once; the tiles of the input projection would each read them again.
__device__ __forceinline__ void Window::copy_frames() {
  const int count = args_.fresh * (kFrameSize / 4), stride = static_cast<int>(gridDim.x) * kWindowThreads;
  for (int i = static_cast<int>(blockIdx.x) * kWindowThreads + thread_; i < count; i += stride) {
    reinterpret_cast<float4*>(args_.obs)[i] = reinterpret_cast<const float4*>(args_.host_obs)[i];
  }
  barrier();
}

// The input block of the fresh frames.
__device__ __forceinline__ void Window::front() {
  constexpr int kInput = kNetwork.input.phases[0].index;
  if (args_.host_obs != nullptr) copy_frames();
  const ProductArguments p = product<kInput>(obs_, kFrameSize, args_.fresh, args_.weights[0]);
  const auto sink = [&](long long row, int column, float value) {
    put(args_.front_hidden, kHiddenSize, row, column, value);
  };
  if (p.rows <= kLoneRows) {
    multiply_lone<kInput>(p, 0, kHiddenSize / kFewColumns, 0, sink);
  } else {
    multiply<kInput>(p, 0, kHiddenSize / kFewColumns, 0, sink);
  }
  barrier();
}

// ---- phases of rows: a block for each row ----

template <int kConvolution, int kAt>
__device__ __forceinline__ void Window::convolve_row(const Row& row) {
  constexpr Convolution kPhase = kNetwork.convolutions[kConvolution];
  constexpr int kSize = size_of(kPhase.in), kTaps = kPhase.taps;
  const float* const x = vector_row<kPhase.in>(row.layer, row.window, row.step);
  const ProductMatrix w = weights<kAt>(row.layer);
  for (int c = thread_; c < kSize; c += kWindowThreads) {
    float taps[kTaps];
#pragma unroll
    for (int t = 0; t < kTaps; ++t) {
      const int back = kTaps - 1 - t;
      taps[t] = back <= row.step ? x[c - static_cast<long long>(back) * kLeadWidth] : 0.0f;
    }
    const float value = convolve(taps, static_cast<const float*>(w.weights) + c, kSize, __ldg(w.bias + c));
    shared_vector<kPhase.out>()[c] = value;
    if constexpr (kWindow.vectors[kPhase.out].kept()) memory<kPhase.out>(row.at)[c] = value;
  }
  __syncthreads();
}

// All of the product's outputs.
template <int kProduct, int kAt, class Weights>
__device__ __forceinline__ void Window::multiply_row(const Row& row, const Weights& columns) {
  constexpr Product kP = kNetwork.products[kProduct];
  constexpr int kOutputs = kNetwork.rows(kP), kFirst = kP.out[0].vector;
  float* const parts = kRowPart.parts.in(shared_);
  const ProductMatrix w = weights<kAt>(row.layer);
  columns.sum_segments(shared_vector<kP.in>(), parts, thread_);
  __syncthreads();
  for (int i = thread_; i < kOutputs; i += kWindowThreads) {
    float sum = add_segments<size_of(kP.in) / kSegment>(parts + i, kOutputs);
    sum = scaled(sum, w.row_scale, i);
    if constexpr (kP.biased) sum = __fadd_rn(sum, __ldg(w.bias + i));
    sum = activated_column<kProduct>(sum, i);
    shared_vector<kFirst>()[i] = sum;
    memory<kFirst>(row.at)[i] = sum;
  }
  __syncthreads();
}

template <int kProduct, int kAt, int kOut>
__device__ __forceinline__ void Window::short_output(const Row& row) {
  constexpr Product kP = kNetwork.products[kProduct];
  constexpr int kVector = kP.out[kOut].vector, kFirst = first_row(kNetwork, kP, kOut);
  const int warp = thread_ / 32, lane = thread_ % 32;
  const ProductMatrix w = weights<kAt>(row.layer);
  for (int s = warp; s < size_of(kVector) / kSegment; s += kWindowThreads / 32) {
    const int c = s * kSegment + lane;
    const float sum =
        dot_short<size_of(kP.in)>(static_cast<const Group*>(w.weights) + kFirst + c, kNetwork.rows(kP),
                                  reinterpret_cast<const float4*>(shared_vector<kP.in>()));
    const float value = activated<kProduct, kOut>(
        __fadd_rn(scaled(sum, w.row_scale, kFirst + c), __ldg(w.bias + kFirst + c)));
    memory<kVector>(row.at)[c] = value;
    if constexpr (kWindow.vectors[kVector].averaged) {
      const float part = segment_sum<values_of(kVector)>(value, c);
      if (lane == 0) kRowPart.vectors[kVector].in(shared_)[s] = part;
    }
  }
}
template <int kProduct, int kAt>
__device__ __forceinline__ void Window::multiply_short(const Row& row) {
  for_each_number<0, kNetwork.products[kProduct].outputs>(
      [&](auto out) { short_output<kProduct, kAt, decltype(out)::value>(row); });
}

template <int kMean>
__device__ __forceinline__ void Window::mean_of_row(const Row& row) {
  constexpr Mean kPhase = kNetwork.means[kMean];
  __syncthreads();
  if (thread_ != 0) return;
  memory<kPhase.out>(row.at)[0] =
      mean_of_segments<values_of(kPhase.in), size_of(kPhase.in)>(kRowPart.vectors[kPhase.in].in(shared_));
}

template <int kAt>
__device__ __forceinline__ void Window::row_phase(const Row& row, const HeldWeights& held) {
  constexpr Phase kPhase = kNetwork.layer.phases[kAt];
  if constexpr (kPhase.kind == Kind::convolution) {
    convolve_row<kPhase.index, kAt>(row);
  } else if constexpr (kPhase.kind == Kind::mean) {
    mean_of_row<kPhase.index>(row);
  } else if constexpr (kNetwork.products[kPhase.index].is_short) {
    multiply_short<kPhase.index, kAt>(row);
  } else if constexpr (kAt == kHeldPhase) {
    multiply_row<kPhase.index, kAt>(row, held);
  } else {
    multiply_row<kPhase.index, kAt>(row, RowWeights<kPhase.index>(weights<kAt>(row.layer).weights, thread_));
  }
}

// After the product before them.
__device__ __forceinline__ void Window::row_phases(int layer) {
  const HeldWeights held(weights<kHeldPhase>(layer).weights, thread_);
  barrier();
  for (long long at = blockIdx.x; at < rows_; at += gridDim.x) {
    const Row row{layer, static_cast<int>(at / args_.seq), static_cast<int>(at % args_.seq), at};
    __syncthreads();
    for_each_number<1, kWindow.rows_end>([&](auto phase) { row_phase<decltype(phase)::value>(row, held); });
  }
}

// ---- products in tiles ----

// Adds the layer's output to its input; of the last layer for the last frames only.
__device__ __forceinline__ void Window::closing(int layer) {
  const bool last_only = layer + 1 == kLayerCount;
  const ProductArguments p = product<kClose>(memory<kClosed>(0), kClosedSize, last_only ? args_.count : rows_,
                                             weights<kLastPhase>(layer));
  const auto add = [&](float* to, long long row, int column, int window, int step, float value) {
    to[row * kHiddenSize + column] = __fadd_rn(value, hidden_row(layer, window, step)[column]);
  };
  if (last_only) {
    multiply_lone<kClose>(p, 0, kHiddenSize / kFewColumns, 0, [&](long long row, int column, float value) {
      add(args_.last_hidden, row, column, static_cast<int>(row), args_.seq - 1, value);
    });
  } else {
    multiply<kClose>(p, 0, kHiddenSize / kFewColumns, 0, [&](long long row, int column, float value) {
      add(memory<kNetwork.hidden>(0), row, column, static_cast<int>(row / args_.seq),
          static_cast<int>(row % args_.seq), value);
    });
  }
}

// Of the first layer for the fresh frames. Of the last one, late outputs are needed for the last frames only.
__device__ __forceinline__ void Window::leading(int layer) {
  constexpr int kEarly = kWindow.early_rows(kNetwork) / kFewColumns, kAll = kLeadWidth / kFewColumns;
  const bool fresh = layer == 0, last_only = !fresh && layer + 1 == kLayerCount;
  const int seq = args_.seq;
  const auto put_row = [&](long long row, int column, float value) {
    if (fresh) {
      put(args_.front_lead, kLeadWidth, row, column, value);
    } else {
      memory<kLeadVector>(row)[column] = value;
    }
  };
  const float* const hidden =  // of the fresh frames: those before the row behind the last window
      fresh ? hidden_row(0, args_.count - 1, seq) - static_cast<long long>(args_.fresh) * kHiddenSize
            : memory<kNetwork.hidden>(0);
  ProductArguments p = product<kLead>(hidden, kHiddenSize, fresh ? args_.fresh : rows_, weights<0>(layer));
  const bool lone = fresh && p.rows <= kLoneRows;
  const int many = lone ? 0 : last_only ? kEarly : kAll;
  const int done = multiply<kLead>(p, 0, many, 0, put_row);
  if (last_only)
    p.x += static_cast<long long>(seq - 1) * kHiddenSize, p.x_stride *= seq, p.rows = args_.count;
  if (many == kAll) return;
  multiply_lone<kLead>(p, many, kAll - many, done, [&](long long row, int column, float value) {
    put_row(last_only ? row * seq + seq - 1 : row, column, value);
  });
}

// The output block of the last frames.
__device__ __forceinline__ void Window::output() {
  for_each_number<0, kNetwork.output.count>([&](auto at) {
    constexpr int kProduct = kNetwork.output.phases[decltype(at)::value].index;
    constexpr int kIn = kNetwork.products[kProduct].in, kOut = kNetwork.products[kProduct].out[0].vector;
    const float* const x = kIn == kNetwork.hidden ? args_.last_hidden : memory<kIn>(0);
    multiply_lone<kProduct>(
        product<kProduct>(x, size_of(kIn), args_.count, output_weights<decltype(at)::value>()), 0,
        divide_up(size_of(kOut), kFewColumns), 0, [&](long long row, int column, float value) {
          if constexpr (kOut == kNetwork.outs) {
            store(row, column, value);
          } else {
            memory<kOut>(row)[column] = value;
          }
        });
    if constexpr (decltype(at)::value + 1 < kNetwork.output.count) barrier();
  });
}

}  // namespace policy
}  // namespace exphil

extern "C" __global__ void __launch_bounds__(exphil::policy::kWindowThreads)
    policy_window(const __grid_constant__ exphil::policy::WindowArguments args,
                  const __grid_constant__ exphil::policy::InlineFrame frame) {
  exphil::policy::Window(args, frame, exphil::policy::dynamic_shared()).run();
}
