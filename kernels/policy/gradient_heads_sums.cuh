// What the rules share backward: a row, and the sums over rows: through a warp, through the warps of a block,
// and as parts of each block. Included by gradient_heads.cu, behind the class.
#pragma once

namespace exphil {
namespace policy {
namespace {

// The sums over a warp's rows.
__device__ __forceinline__ void HeadWalk::to_warp(const Values& values, float (&sums)[kWarps][kStates]) {
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    float sum = values.v[n];
#pragma unroll
    for (int offset = kAcross; offset < 32; offset *= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, offset));
    }
    if (thread() % 32 < kAcross) sums[thread() / 32][thread() % 32 * kEach + n] = sum;
  }
}

__device__ __forceinline__ float HeadWalk::of_warps(const float* values) {
  float sum = 0.0f;
  for (int w = 0; w < kWarps; ++w) sum = __fadd_rn(sum, values[w]);
  return sum;
}

__device__ __forceinline__ void HeadWalk::key_back(long long t, const float (&sums)[kWarps][kStates],
                                                   float* parts, int rank) const {
  const int part = head_ % (args_.heads / args_.groups) * tiles_ + tile_;
  const long long of_part = part * args_.sequences * args_.seq + row(t);
  float* const to = parts + ((of_part * kRanks + rank) * args_.groups + group_) * KEYS;
  for (int n = thread(); n < KEYS; n += kHeadWalkThreads) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum = __fadd_rn(sum, sums[w][n]);
    to[n] = sum;
  }
}

// The thread's row `i` of S' = decay S + input key^T, whose output has the gradient dy: adds to the sums in
// `d`, leaves the gradient of S' in dh_, and returns that of `input`, in every lane. h_ has S.
__device__ __forceinline__ float HeadWalk::row_back(int i, float input, float dy, const HeadStep& step,
                                                    HeadStep* d) {
  float d_input = 0.0f;
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    const float before = h_[i].v[n];
    const float after = __fmaf_rn(step.decay, before, __fmul_rn(input, step.key.v[n]));
    const float d_after = __fmaf_rn(dy, step.query.v[n], dh_[i].v[n]);
    d->query.v[n] = __fmaf_rn(dy, after, d->query.v[n]);
    d->key.v[n] = __fmaf_rn(d_after, input, d->key.v[n]);
    d_input = __fmaf_rn(d_after, step.key.v[n], d_input);
    d->decay = __fmaf_rn(d_after, before, d->decay);
    dh_[i].v[n] = d_after;
  }
  return add_lanes<kAcross>(d_input);
}

__device__ __forceinline__ void HeadWalk::skips_back(long long part) const {
  __shared__ float sums[kWarps];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    sum = __fadd_rn(sum, d_skip_[i]);
    if (args_.skips == args_.heads || lane_ != 0 || !exists(i)) continue;
    args_.d_parts[sequence_ * width() + of_heads(i)] = d_skip_[i];
  }
  if (args_.skips != args_.heads) return;
  sum = warp_sum(sum);
  if (thread() % 32 == 0) sums[thread() / 32] = sum;
  __syncthreads();
  if (thread() == 0) args_.d_parts[part * args_.heads + head_] = of_warps(sums);
}

}  // namespace
}  // namespace policy
}  // namespace exphil
