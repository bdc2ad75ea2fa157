// The delta rule in the walk of policy/gradient_heads.cu, which includes it.
#pragma once

namespace exphil {
namespace policy {
namespace {

// <S, key> of the thread's row `i`: every lane gets it.
__device__ __forceinline__ float HeadWalk::recalled(int i, const Values& key) const {
  float sum = 0.0f;
#pragma unroll
  for (int n = 0; n < kEach; ++n) sum = __fmaf_rn(h_[i].v[n], key.v[n], sum);
  return add_lanes<kAcross>(sum);
}

__device__ __forceinline__ float HeadWalk::rate(long long t, int i) const {
  return exists(i) ? __ldg(args_.dt + place(t, i)) : 0.0f;
}

__device__ __forceinline__ void HeadWalk::step_delta(long long t) {
  const float by = of_head(args_.decay, t);
  const Values key = load(args_.key, t);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float input = formulas::head_input<formulas::HeadRule::delta>(Real{rate(t, i)}, Real{value(t, i)},
                                                                        Real{by}, Real{recalled(i, key)})
                            .v;
#pragma unroll
    for (int n = 0; n < kEach; ++n) h_[i].v[n] = __fmaf_rn(by, h_[i].v[n], __fmul_rn(input, key.v[n]));
  }
}

// From the states before step t, which h_ has.
__device__ __forceinline__ void HeadWalk::back_delta(long long t, const StepBack& given) {
  __shared__ Sums sums;
  const float by = given.decay;
  const HeadStep step = {given.key, given.query, by};
  HeadStep d = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float dy = given.dy[i];
    const Real of_row = {given.rate[i]}, x = {given.value[i]}, known = {recalled(i, step.key)};
    const float input = formulas::head_input<formulas::HeadRule::delta>(of_row, x, Real{by}, known).v;
    const float d_input = row_back(i, input, dy, step, &d);
    const auto back = formulas::head_input_gradient<formulas::HeadRule::delta, device::Math>(
        of_row, x, Real{by}, known, Real{d_input});
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      d.key.v[n] = __fmaf_rn(back.recalled.v, h_[i].v[n], d.key.v[n]);
      dh_[i].v[n] = __fmaf_rn(back.recalled.v, step.key.v[n], __fmul_rn(dh_[i].v[n], by));
    }
    if (lane_ != 0) continue;
    d.decay = __fadd_rn(d.decay, back.decay.v);
    d_skip_[i] = __fmaf_rn(dy, x.v, d_skip_[i]);
    if (!exists(i)) continue;
    args_.d_value[place(t, i)] = __fmaf_rn(dy, skip(i), back.value.v);
    args_.dt_parts[place(t, i)] = back.rate.v;
  }
  to_warp(d.key, sums.keys), to_warp(d.query, sums.queries);
  d.decay = warp_sum(d.decay);
  if (thread() % 32 == 0) sums.decay[thread() / 32] = d.decay;
  __syncthreads();
  key_back(t, sums.keys, args_.key_parts), key_back(t, sums.queries, args_.query_parts);
  if (thread() == 0) {
    args_.decay_parts[(tile_ * args_.sequences * args_.seq + row(t)) * args_.heads + head_] =
        of_warps(sums.decay);
  }
  __syncthreads();
}

}  // namespace
}  // namespace policy
}  // namespace exphil
