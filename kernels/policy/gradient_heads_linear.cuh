// The linear rule in the walk of policy/gradient_heads.cu, which includes it.
#pragma once

namespace exphil {
namespace policy {
namespace {

__device__ __forceinline__ void HeadWalk::step_linear(long long t) {
  const float rate = dt(t), by = decay(rate);
  const Values key = load(args_.key, t);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float input = __fmul_rn(rate, value(t, i));
#pragma unroll
    for (int n = 0; n < kEach; ++n) h_[i].v[n] = __fmaf_rn(by, h_[i].v[n], __fmul_rn(input, key.v[n]));
  }
}

// From the states before step t, which h_ has.
__device__ __forceinline__ void HeadWalk::back_linear(long long t, const StepBack& given, float* da) {
  __shared__ Sums sums;
  const float rate = given.rate[0], by = decay(rate);
  const HeadStep step = {given.key, given.query, by};
  HeadStep d = {};
  float d_rate = 0.0f;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float x = given.value[i], dy = given.dy[i];
    const float input = __fmul_rn(rate, x);
    const float d_input = row_back(i, input, dy, step, &d);
#pragma unroll
    for (int n = 0; n < kEach; ++n) dh_[i].v[n] = __fmul_rn(dh_[i].v[n], by);
    if (lane_ != 0) continue;
    d_rate = __fmaf_rn(d_input, x, d_rate);
    d_skip_[i] = __fmaf_rn(dy, x, d_skip_[i]);
    if (exists(i)) args_.d_value[place(t, i)] = __fmaf_rn(d_input, rate, __fmul_rn(dy, skip(i)));
  }
  to_warp(d.key, sums.keys), to_warp(d.query, sums.queries);
  d_rate = warp_sum(d_rate), d.decay = warp_sum(d.decay);
  if (thread() % 32 == 0) sums.rate[thread() / 32] = d_rate, sums.decay[thread() / 32] = d.decay;
  __syncthreads();
  key_back(t, sums.keys, args_.key_parts), key_back(t, sums.queries, args_.query_parts);
  if (thread() == 0) {
    const float d_exponent = __fmul_rn(of_warps(sums.decay), by);
    *da = __fmaf_rn(d_exponent, rate, *da);
    args_.dt_parts[(tile_ * args_.sequences * args_.seq + row(t)) * args_.heads + head_] =
        __fmaf_rn(d_exponent, a_, of_warps(sums.rate));
  }
  __syncthreads();
}

}  // namespace
}  // namespace policy
}  // namespace exphil
