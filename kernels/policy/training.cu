// A policy's training step between and after the passes of its gradient: the loss, the norm of the gradient,
// AdamW. Launched by c_src/cuda/policy/training_kernels.cpp. Sizes are arguments.
//
// Losses and norms are summed in double and in an order that the sizes decide. An element's AdamW has the
// operations of core/training/adamw.cpp, each rounded.
#include "kernels/policy/training_arguments.cuh"
#include "kernels/policy/warp.cuh"

namespace exphil {
namespace policy {
namespace {

__device__ __forceinline__ double warp_total(double value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

__device__ __forceinline__ bool is_finite(float value) {
  return __fsub_rn(value, value) == 0.0f;
}

// The block's sum of what its threads have, which thread 0 gets.
__device__ __forceinline__ double block_total(double value, double* of_warps) {
  const double sum = warp_total(value);
  __syncthreads();  // after an earlier call's reads
  if (thread() % 32 == 0) of_warps[thread() / 32] = sum;
  __syncthreads();
  double total = 0;
  for (int i = 0; i < kTrainingThreads / 32; ++i) total += of_warps[i];
  return total;
}

// The loss of a row in one group, by a warp.
class RowLoss {
 public:
  __device__ __forceinline__ RowLoss(const TrainingLossArguments& args, long long row, const TrainingGroup& g)
      : args_(args),
        g_(g),
        outs_(args.outs + row * args.width + g.first),
        d_outs_(args.d_outs + row * args.width + g.first),
        row_(row) {}

  __device__ __forceinline__ double run() const {
    if (args_.values != nullptr) return squares();
    const int* const targets = args_.choices + row_ * args_.columns + g_.column;
    if (g_.binary) return events(targets);
    return *targets < 0 ? 0.0 : choice(*targets);
  }

 private:
  __device__ __forceinline__ double squares() const {
    const float* const targets = args_.values + row_ * args_.width + g_.first;
    double sum = 0;
    for (int i = thread() % 32; i < g_.count; i += 32) {
      const double difference = static_cast<double>(outs_[i]) - static_cast<double>(targets[i]);
      sum += difference * difference;
      d_outs_[i] = static_cast<float>(2 * difference * args_.scale);
    }
    return warp_total(sum);
  }

  __device__ __forceinline__ double events(const int* targets) const {
    double sum = 0;
    for (int i = thread() % 32; i < g_.count; i += 32) {
      const int target = targets[i];
      if (target < 0) continue;
      const double z = static_cast<double>(outs_[i]), small = exp(z < 0 ? z : -z);
      const double sigmoid = z >= 0 ? 1 / (1 + small) : small / (1 + small);
      d_outs_[i] = static_cast<float>((sigmoid - target) * args_.scale);
      sum += (z > 0 ? z : 0.0) + log1p(small) - target * z;
    }
    return warp_total(sum);
  }

  __device__ __forceinline__ double choice(int target) const {
    float most = outs_[0];
    for (int i = thread() % 32; i < g_.count; i += 32) most = max(most, outs_[i]);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      most = max(most, __shfl_xor_sync(0xffffffffu, most, offset));
    }
    double sum = 0;
    for (int i = thread() % 32; i < g_.count; i += 32) sum += share(i, most);
    sum = warp_total(sum);
    for (int i = thread() % 32; i < g_.count; i += 32) {
      d_outs_[i] = static_cast<float>((share(i, most) / sum - (i == target ? 1.0 : 0.0)) * args_.scale);
    }
    return log(sum) + static_cast<double>(most) - static_cast<double>(outs_[target]);
  }

  __device__ __forceinline__ double share(int i, float most) const {
    return exp(static_cast<double>(outs_[i]) - static_cast<double>(most));
  }

  const TrainingLossArguments& args_;
  const TrainingGroup g_;
  const float* outs_;
  float* d_outs_;
  const long long row_;
};

}  // namespace
}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// A warp for each group of each row.
extern "C" __global__ void __launch_bounds__(kTrainingThreads)
    policy_training_loss(const TrainingLossArguments args) {
  const long long task = static_cast<long long>(blockIdx.x) * (kTrainingThreads / 32) + thread() / 32;
  const long long row = task / args.group_count;
  if (row >= args.rows) return;
  double loss = 0;
  if (args.mask == nullptr || args.mask[row] != 0) {
    loss = RowLoss(args, row, args.groups[task % args.group_count]).run();
  }
  if (thread() % 32 == 0) args.losses[task] = loss;
}

// grid: a block for each kSquaresOfBlock values.
extern "C" __global__ void __launch_bounds__(kTrainingThreads)
    policy_training_squares(const TrainingSumsArguments args) {
  __shared__ double of_warps[kTrainingThreads / 32];
  const long long first = static_cast<long long>(blockIdx.x) * kSquaresOfBlock;
  double sum = 0;
#pragma unroll 4
  for (long long i = first + thread(); i < first + kSquaresOfBlock && i < args.count; i += kTrainingThreads) {
    const double value = args.kinds[i] == kFixed ? 0.0 : static_cast<double>(args.gradient[i]);
    sum += value * value;
  }
  const double total = block_total(sum, of_warps);
  if (thread() == 0) args.squares[blockIdx.x] = total;
}

// One block.
extern "C" __global__ void __launch_bounds__(kTrainingThreads)
    policy_training_result(const TrainingSumsArguments args) {
  __shared__ double of_warps[kTrainingThreads / 32];
  const long long blocks = (args.count + kSquaresOfBlock - 1) / kSquaresOfBlock;
  double squares = 0, loss = 0;
#pragma unroll 4
  for (long long i = thread(); i < blocks; i += kTrainingThreads) squares += args.squares[i];
#pragma unroll 8
  for (long long i = thread(); i < args.loss_count; i += kTrainingThreads) loss += args.losses[i];
  const double norm = sqrt(block_total(squares, of_warps)), total = block_total(loss, of_warps);
  if (thread() != 0) return;
  const bool clips = args.clip_norm > 0 && norm > args.clip_norm;
  TrainingResult result;
  result.loss = total * args.loss_scale, result.norm = norm, result.finite = 1;
  result.gradient_scale = clips ? static_cast<float>(args.clip_norm / norm) : 1.0f;
  *args.result = result;
}

// A thread for each value. Fixed values are in both sets.
extern "C" __global__ void __launch_bounds__(kTrainingThreads)
    policy_training_adamw(const AdamWArguments args) {
  const long long i = static_cast<long long>(blockIdx.x) * kTrainingThreads + thread();
  if (i >= args.count || args.kinds[i] == kFixed) return;
  const float gradient = __fmul_rn(args.gradient[i], args.result->gradient_scale);
  const float m = __fadd_rn(__fmul_rn(args.beta1, args.m[i]), __fmul_rn(args.rest1, gradient));
  const float v =
      __fadd_rn(__fmul_rn(args.beta2, args.v[i]), __fmul_rn(__fmul_rn(args.rest2, gradient), gradient));
  const float kept = args.kinds[i] == kDecays ? __fmul_rn(args.kept, args.weights[i]) : args.weights[i];
  const float by = __fadd_rn(__fmul_rn(__fsqrt_rn(v), args.root), args.epsilon);
  const float weight = __fsub_rn(kept, __fdiv_rn(__fmul_rn(args.rate, m), by));
  args.next_weights[i] = weight, args.next_m[i] = m, args.next_v[i] = v;
  if (!is_finite(v) || !is_finite(weight)) args.result->finite = 0;
}

// blockIdx.y: the weight.
extern "C" __global__ void __launch_bounds__(kTrainingThreads)
    policy_training_derive(const DeriveArguments args) {
  const DerivedWeight derived = args.derived[blockIdx.y];
  const long long step = static_cast<long long>(gridDim.x) * kTrainingThreads;
  for (long long i = static_cast<long long>(blockIdx.x) * kTrainingThreads + thread(); i < derived.count;
       i += step) {
    const float value = static_cast<float>(-exp(static_cast<double>(args.values[derived.from + i])));
    args.values[derived.to + i] = value;
    if (args.result != nullptr && !is_finite(value)) args.result->finite = 0;
  }
}
