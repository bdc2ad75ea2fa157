// The trapezoidal rule in the walk of policy/gradient_heads.cu, which includes it. Loops over ranks are
// unrolled: where they are not, NVRTC 13.0 reads memory that it has freed and now and then ends the process.
#pragma once

namespace exphil {
namespace policy {
namespace {

__device__ __forceinline__ void HeadWalk::step_trapezoid(long long t) {
  const float now = dt(t), before = of_head(args_.rate_before, t), by = of_head(args_.decay, t);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int n = 0; n < kEach; ++n) h_[i].v[n] = __fmul_rn(by, h_[i].v[n]);
  }
#pragma unroll
  for (int rank = 0; rank < kRanks; ++rank) {
    const Values key = load(args_.key, t, rank), key_before = load(args_.key_before, t, rank);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float in_now = __fmul_rn(__fmul_rn(now, value(t, i)), scale(i, rank));
      const float in_before = __fmul_rn(__fmul_rn(before, value_before(t, i)), scale(i, rank));
#pragma unroll
      for (int n = 0; n < kEach; ++n) {
        h_[i].v[n] = __fmaf_rn(in_before, key_before.v[n], h_[i].v[n]);
        h_[i].v[n] = __fmaf_rn(in_now, key.v[n], h_[i].v[n]);
      }
    }
  }
}

// From the states before step t, which h_ has: rank by rank, with the states after the step.
__device__ __forceinline__ void HeadWalk::back_trapezoid(long long t) {
  __shared__ Sums sums;
  __shared__ float before_keys[kWarps][kStates], before_rates[kWarps];
  const float now = dt(t), before = of_head(args_.rate_before, t), by = of_head(args_.decay, t);
  Values states[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) states[i] = h_[i];
  step_trapezoid(t);
  float dy[kRows][kRanks], d_value[kRows] = {}, d_value_before[kRows] = {};
  float d_now = 0.0f, d_before = 0.0f, d_decay = 0.0f;
  // What the outputs give back to the state, before anything is multiplied by it.
#pragma unroll
  for (int rank = 0; rank < kRanks; ++rank) {
    const Values query = load(args_.query, t, rank);
    Values d_query{};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      dy[i][rank] = exists(i) ? __ldg(args_.d_out + place(t, i, rank)) : 0.0f;
#pragma unroll
      for (int n = 0; n < kEach; ++n) {
        dh_[i].v[n] = __fmaf_rn(dy[i][rank], query.v[n], dh_[i].v[n]);
        d_query.v[n] = __fmaf_rn(dy[i][rank], h_[i].v[n], d_query.v[n]);
      }
    }
    to_warp(d_query, sums.queries);
    __syncthreads();
    key_back(t, sums.queries, args_.query_parts, rank);
    __syncthreads();
  }
#pragma unroll
  for (int rank = 0; rank < kRanks; ++rank) {
    const Values key = load(args_.key, t, rank), key_before = load(args_.key_before, t, rank);
    Values d_key{}, d_key_before{};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float x = value(t, i), x_before = value_before(t, i), s = scale(i, rank);
      const float in_now = __fmul_rn(__fmul_rn(now, x), s);
      const float in_before = __fmul_rn(__fmul_rn(before, x_before), s);
      float d_in_now = 0.0f, d_in_before = 0.0f;
#pragma unroll
      for (int n = 0; n < kEach; ++n) {
        const float d = dh_[i].v[n];
        d_key.v[n] = __fmaf_rn(d, in_now, d_key.v[n]);
        d_key_before.v[n] = __fmaf_rn(d, in_before, d_key_before.v[n]);
        d_in_now = __fmaf_rn(d, key.v[n], d_in_now);
        d_in_before = __fmaf_rn(d, key_before.v[n], d_in_before);
        if (rank == 0) d_decay = __fmaf_rn(d, states[i].v[n], d_decay);
      }
      d_in_now = add_lanes<kAcross>(d_in_now), d_in_before = add_lanes<kAcross>(d_in_before);
      if (lane_ != 0) continue;
      const float given = __fmul_rn(dy[i][rank], skip(i));
      const float of_now = __fmaf_rn(d_in_now, now, given), of_before = __fmul_rn(d_in_before, before);
      d_now = __fmaf_rn(d_in_now, __fmul_rn(x, s), d_now);
      d_before = __fmaf_rn(d_in_before, __fmul_rn(x_before, s), d_before);
      d_value[i] = __fmaf_rn(of_now, s, d_value[i]);
      d_value_before[i] = __fmaf_rn(of_before, s, d_value_before[i]);
      d_scale_[i][rank] = __fmaf_rn(of_now, x, __fmaf_rn(of_before, x_before, d_scale_[i][rank]));
      d_skip_[i] = __fmaf_rn(dy[i][rank], __fmul_rn(x, s), d_skip_[i]);
    }
    to_warp(d_key, sums.keys), to_warp(d_key_before, before_keys);
    __syncthreads();
    key_back(t, sums.keys, args_.key_parts, rank), key_back(t, before_keys, args_.key_before_parts, rank);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int n = 0; n < kEach; ++n) dh_[i].v[n] = __fmul_rn(dh_[i].v[n], by);
    if (lane_ != 0 || !exists(i)) continue;
    args_.d_value[place(t, i)] = d_value[i], args_.d_value_before[place(t, i)] = d_value_before[i];
  }
  d_now = warp_sum(d_now), d_before = warp_sum(d_before), d_decay = warp_sum(d_decay);
  if (thread() % 32 == 0) {
    const int warp = thread() / 32;
    sums.rate[warp] = d_now, sums.decay[warp] = d_decay, before_rates[warp] = d_before;
  }
  __syncthreads();
  if (thread() == 0) {
    const long long at = (tile_ * args_.sequences * args_.seq + row(t)) * args_.heads + head_;
    args_.dt_parts[at] = of_warps(sums.rate), args_.decay_parts[at] = of_warps(sums.decay);
    args_.rate_before_parts[at] = of_warps(before_rates);
  }
  __syncthreads();
}

__device__ __forceinline__ void HeadWalk::scales_back() const {
  if (args_.scale_parts == nullptr || lane_ != 0) return;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (!exists(i)) continue;
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      args_.scale_parts[sequence_ * width() * kRanks + scale_at(i, rank)] = d_scale_[i][rank];
    }
  }
}

}  // namespace
}  // namespace policy
}  // namespace exphil
