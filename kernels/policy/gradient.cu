// The steps of a policy's gradient between its products and scans: norms, the causal convolution, and the
// sums of parts. Launched by c_src/cuda/policy/gradient_kernels.cpp. Compiled with -D TAPS, the taps of the
// convolution; other sizes are arguments.
//
// Rows depend on their own sequence alone. What all rows add to (weights) is summed in parts that the sizes
// decide, and the parts are added in order.
#include "kernels/common/device_math.cuh"
#include "kernels/common/gradient_formulas.cuh"
#include "kernels/common/launches.cuh"
#include "kernels/policy/gradient_arguments.cuh"
#include "kernels/policy/warp.cuh"

namespace exphil {
namespace policy {
namespace {

using device::Real;

struct RowScale {
  float mean, scale;
};

// Of one row, by a warp.
__device__ __forceinline__ RowScale row_scale(const NormArguments& args, const float* x) {
  const float each = 1.0f / static_cast<float>(args.width);
  float mean = 0.0f;
  if (args.bias != nullptr) {
    for (int i = thread() % 32; i < args.width; i += 32) mean = __fadd_rn(mean, x[i]);
    mean = __fmul_rn(warp_sum(mean), each);
  }
  float sum = 0.0f;
  for (int i = thread() % 32; i < args.width; i += 32) {
    const float value = __fsub_rn(x[i], mean);
    sum = __fmaf_rn(value, value, sum);
  }
  return {mean, rsqrtf(__fmaf_rn(warp_sum(sum), each, args.epsilon))};
}

// x before the step `step` of a sequence, or of its history; `x` points at the sequence's channel.
__device__ __forceinline__ float input_at(const ConvolveArguments& args, const float* x, const float* history,
                                          long long step) {
  if (step >= 0) return x[step * args.x_row];
  return history == nullptr ? 0.0f : history[step + TAPS - 1];
}

// A channel of one sequence.
struct Channel {
  const float *x, *history;
  float weight[TAPS], bias;

  __device__ __forceinline__ Channel(const ConvolveArguments& args, long long sequence, int c)
      : x(args.x + sequence * args.seq * args.x_row + c),
        history(args.history == nullptr ? nullptr
                                        : args.history + (sequence * args.channels + c) * (TAPS - 1)),
        bias(args.bias == nullptr ? 0.0f : __ldg(args.bias + c)) {
#pragma unroll
    for (int k = 0; k < TAPS; ++k) weight[k] = __ldg(args.weight + static_cast<long long>(c) * TAPS + k);
  }

  // inputs: those of the last TAPS steps, oldest first.
  __device__ __forceinline__ float sum(const float (&inputs)[TAPS]) const {
    float v = bias;
#pragma unroll
    for (int k = 0; k < TAPS; ++k) v = __fmaf_rn(weight[k], inputs[k], v);
    return v;
  }
};

__device__ __forceinline__ float silu_derivative(float v) {
  return formulas::silu_derivative<device::Math>(Real{v}).v;
}

// Row `row` of x, or part `part` of it, among all of them.
template <bool kParts>
__device__ __forceinline__ long long part_row(const NormArguments& args, long long row, int part) {
  return kParts ? row * args.parts + part : row;
}

template <bool kParts>
__device__ __forceinline__ void norm(const NormArguments& args) {
  const long long row = static_cast<long long>(blockIdx.x) * (kGradientThreads / 32) + thread() / 32;
  if (row >= (kParts ? args.rows * args.parts : args.rows)) return;
  const float* x = args.x + row * args.width;
  float* out = args.out + row * args.out_row;
  const float* const weight = args.weight + (kParts ? row % args.weights * args.width : 0);
  const RowScale s = row_scale(args, x);
  for (int i = thread() % 32; i < args.width; i += 32) {
    const float u = __fmul_rn(__fsub_rn(x[i], s.mean), s.scale);
    out[i] = __fmaf_rn(u, __ldg(weight + i), args.bias == nullptr ? 0.0f : __ldg(args.bias + i));
  }
}

// With g = dy weight: dx = scale (g - mean(g) - u mean(g u)); without mean(g) for RMSNorm. A block takes
// kNormRows rows: first a warp per row, then a thread per column.
template <bool kParts>
__device__ __forceinline__ void norm_back(const NormArguments& args) {
  __shared__ float scales[kNormRows][4];  // mean, scale, mean(g), mean(g u)
  const int part = kParts ? static_cast<int>(blockIdx.x) % args.parts : 0;
  const long long first = static_cast<long long>(blockIdx.x) / (kParts ? args.parts : 1) * kNormRows;
  const int rows = args.rows - first < kNormRows ? static_cast<int>(args.rows - first) : kNormRows;
  const float each = 1.0f / static_cast<float>(args.width);
  for (int r = thread() / 32; r < rows; r += kGradientThreads / 32) {
    const long long at = part_row<kParts>(args, first + r, part) * args.width;
    const float *x = args.x + at, *dy = args.dy + at;
    const RowScale s = row_scale(args, x);
    float g_sum = 0.0f, gu_sum = 0.0f;
    for (int i = thread() % 32; i < args.width; i += 32) {
      const float g = __fmul_rn(dy[i], __ldg(args.weight + part % args.weights * args.width + i));
      g_sum = __fadd_rn(g_sum, g);
      gu_sum = __fmaf_rn(g, __fmul_rn(__fsub_rn(x[i], s.mean), s.scale), gu_sum);
    }
    const float mean_g = args.bias == nullptr ? 0.0f : __fmul_rn(warp_sum(g_sum), each);
    const float mean_gu = __fmul_rn(warp_sum(gu_sum), each);
    if (thread() % 32 != 0) continue;
    scales[r][0] = s.mean, scales[r][1] = s.scale, scales[r][2] = mean_g, scales[r][3] = mean_gu;
  }
  __syncthreads();
  for (int i = thread(); i < args.width; i += kGradientThreads) {
    const float weight = __ldg(args.weight + part % args.weights * args.width + i);
    float d_weight = 0.0f, d_bias = 0.0f;
#pragma unroll 4
    for (int r = 0; r < rows; ++r) {
      const long long at = part_row<kParts>(args, first + r, part) * args.width + i;
      const float d = args.dy[at], u = __fmul_rn(__fsub_rn(args.x[at], scales[r][0]), scales[r][1]);
      const float inner = __fmaf_rn(d, weight, __fmaf_rn(-u, scales[r][3], -scales[r][2]));
      args.dx[at] = __fmaf_rn(scales[r][1], inner, args.adds ? args.dx[at] : 0.0f);
      d_weight = __fmaf_rn(d, u, d_weight);
      d_bias = __fadd_rn(d_bias, d);
    }
    args.weight_parts[static_cast<long long>(blockIdx.x) * args.width + i] = d_weight;
    if (args.bias != nullptr) args.bias_parts[static_cast<long long>(blockIdx.x) * args.width + i] = d_bias;
  }
}

}  // namespace
}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// A warp per row.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_norm(const NormArguments args) {
  exphil::device::take_turn();
  norm<false>(args);
}

// The same of every part of a row, of RMSNorm.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_norm_of_parts(const NormArguments args) {
  exphil::device::take_turn();
  norm<true>(args);
}

extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_norm_back(const NormArguments args) {
  exphil::device::take_turn();
  norm_back<false>(args);
}

// Blocks of the same rows, one for each part, are neighbours.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_norm_of_parts_back(const NormArguments args) {
  exphil::device::take_turn();
  norm_back<true>(args);
}

// A thread per (row, channel).
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_convolve(const ConvolveArguments args) {
  exphil::device::take_turn();
  const long long i = static_cast<long long>(blockIdx.x) * kGradientThreads + thread();
  const long long row = i / args.inner;
  if (row >= args.sequences * args.seq) return;
  const long long step = row % args.seq;
  const int c = static_cast<int>(i % args.inner);
  const Channel channel(args, row / args.seq, c);
  float inputs[TAPS];
#pragma unroll
  for (int k = 0; k < TAPS; ++k) {
    inputs[k] = input_at(args, channel.x, channel.history, step - (TAPS - 1) + k);
  }
  args.s[row * args.s_row + c] = exphil::device::silu(channel.sum(inputs));
}

// The last TAPS - 1 inputs. A thread per (sequence, channel).
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_history(const ConvolveArguments args) {
  exphil::device::take_turn();
  const long long i = static_cast<long long>(blockIdx.x) * kGradientThreads + thread();
  const long long sequence = i / args.inner;
  if (sequence >= args.sequences) return;
  const int c = static_cast<int>(i % args.inner);
  const Channel channel(args, sequence, c);
  for (int k = 0; k < TAPS - 1; ++k) {
    args.final_history[(sequence * args.channels + c) * (TAPS - 1) + k] =
        input_at(args, channel.x, channel.history, args.seq - (TAPS - 1) + k);
  }
}

// With dv = ds silu'(v): dx and the sums for weight and bias. A thread walks a segment of kConvolveSteps
// steps of one channel from its end, after the TAPS - 1 steps behind it that read its inputs. grid: tiles of
// channels of each segment of each sequence.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_convolve_back(const ConvolveArguments args) {
  exphil::device::take_turn();
  const int tiles = (args.inner + kGradientThreads - 1) / kGradientThreads;
  const long long segments = (args.seq + kConvolveSteps - 1) / kConvolveSteps;
  const long long part = blockIdx.x / tiles, sequence = part / segments;
  const int c = static_cast<int>(blockIdx.x % tiles) * kGradientThreads + thread();
  if (c >= args.inner) return;
  const Channel channel(args, sequence, c);
  const long long begin = part % segments * kConvolveSteps;
  const long long end = args.seq - begin < kConvolveSteps ? args.seq : begin + kConvolveSteps;
  const long long last = args.seq - end < TAPS - 1 ? args.seq : end + TAPS - 1;
  const float* ds = args.ds + sequence * args.seq * args.s_row + c;
  float* dx = args.dx + sequence * args.seq * args.x_row + c;
  float inputs[TAPS], dv[TAPS] = {}, d_weight[TAPS] = {}, d_bias = 0.0f;  // dv of this step and later ones
#pragma unroll
  for (int k = 1; k < TAPS; ++k) {
    inputs[k - 1] = input_at(args, channel.x, channel.history, last - (TAPS - 1) + k - 1);
  }
#pragma unroll 4
  for (long long t = last - 1; t >= begin; --t) {
#pragma unroll
    for (int k = TAPS - 1; k > 0; --k) inputs[k] = inputs[k - 1], dv[k] = dv[k - 1];
    inputs[0] = input_at(args, channel.x, channel.history, t - (TAPS - 1));
    dv[0] = __fmul_rn(ds[t * args.s_row], silu_derivative(channel.sum(inputs)));
    if (t >= end) continue;
    float sum = 0.0f;
#pragma unroll
    for (int later = 0; later < TAPS; ++later) {
      sum = __fmaf_rn(channel.weight[TAPS - 1 - later], dv[later], sum);
    }
    dx[t * args.x_row] = sum;
#pragma unroll
    for (int k = 0; k < TAPS; ++k) d_weight[k] = __fmaf_rn(dv[0], inputs[k], d_weight[k]);
    d_bias = __fadd_rn(d_bias, dv[0]);
  }
#pragma unroll
  for (int k = 0; k < TAPS; ++k) args.weight_parts[(part * args.channels + c) * TAPS + k] = d_weight[k];
  if (args.bias != nullptr) args.bias_parts[part * args.channels + c] = d_bias;
  if (args.d_history == nullptr || begin > 0) return;
    // Input k of the history is read by the first k + 1 steps.
#pragma unroll
  for (int k = 0; k < TAPS - 1; ++k) {
    float sum = 0.0f;
#pragma unroll
    for (int step = 0; step <= k; ++step) sum = __fmaf_rn(channel.weight[k - step], dv[step], sum);
    args.d_history[(sequence * args.channels + c) * (TAPS - 1) + k] = sum;
  }
}

// grid: kGradientThreads values.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_copy(const CopyRowsArguments args) {
  exphil::device::take_turn();
  const long long i = static_cast<long long>(blockIdx.x) * kGradientThreads + thread();
  const long long row = i / args.columns, column = i % args.columns;
  if (row < args.rows) args.to[row * args.to_row + column] = args.from[row * args.from_row + column];
}

// grid: kGradientThreads / strands elements of each sum, sum after sum.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_sums(const __grid_constant__ PartSums sums) {
  exphil::device::take_turn();
  __shared__ float strands[kGradientThreads];
  int number = 0;
  while (number + 1 < sums.count && blockIdx.x >= sums.sums[number + 1].first_block) ++number;
  const PartSum& sum = sums.sums[number];
  const int across = kGradientThreads / sum.strands, strand = thread() / across;
  const long long i = (blockIdx.x - sum.first_block) * across + thread() % across;
  float value = 0.0f;
  if (i < sum.count) {
#pragma unroll 8
    for (long long part = strand; part < sum.parts; part += sum.strands) {
      value = __fadd_rn(value, sum.from[part * sum.count + i]);
    }
  }
  if (sum.strands > 1) {
    strands[thread()] = value;
    __syncthreads();
    if (strand > 0) return;
    for (int other = 1; other < sum.strands; ++other) {
      value = __fadd_rn(value, strands[other * across + thread()]);
    }
  }
  if (i >= sum.count) return;
  if (sum.factor != nullptr) value = __fmul_rn(value, sum.factor[i]);
  sum.to[i] = sum.adds ? __fadd_rn(sum.to[i], value) : value;
}
