// What a team begins a layer with: its weights in shared memory, its frames' observations or outputs of the
// layer before, and the rows of h. Part of policy/window_team.cu.
#pragma once

#include "kernels/policy/window_team.cuh"

namespace exphil {
namespace policy {

// `count` rows of kRun bytes each, of which `valid` exist; the rest is zero.
template <int kRun>
__device__ __forceinline__ void TeamWindow::stage_rows(void* to, int to_stride, const void* from,
                                                       long long stride, int count, int valid) {
  constexpr int kChunks = kRun / 16;
  static_assert(kRun % 16 == 0, "copied in 16 bytes");
#pragma unroll 4
  for (int i = thread_; i < count * kChunks; i += THREADS) {
    const int at = i % kChunks * 16;
    device::copy_async<16>(static_cast<char*>(to) + i / kChunks * to_stride + at,
                           static_cast<const char*>(from) + (at < valid ? i / kChunks * stride + at : 0),
                           at < valid);
  }
}

// Starts loading this block's weights of a layer. Those of the layer before are no longer read.
__device__ __forceinline__ void TeamWindow::stage(int layer) {
  constexpr WindowTeamWeights w = kPart.weights;
  constexpr int kGroup = 4 * kDims.weight_bytes(), kFloats = 4 * kOwn, kGroups = kGroup * kOwn;
  const int first = rank_ * kOwn, own = most(0, least(kOwn, kInner - first));
  const auto groups = [](const void* from, long long index) {
    return static_cast<const char*>(from) + index * kGroup;
  };
  const ProductMatrix in_proj = of_layer(args_.in_proj, layer), x_proj = of_layer(args_.x_proj, layer);
  char* const to = staged_;
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // columns of x, then of z
    const long long column = half * kInner + (own > 0 ? first : 0);
    stage_rows<kGroups>(w.in_proj.in(to) + half * kGroups, 2 * kGroups, groups(in_proj.weights, column),
                        1LL * product_columns(2 * kInner) * kGroup, kModel / 4, own * kGroup);
    stage_rows<kFloats>(w.in_rows.bias.in(to) + half * kOwn, 0, in_proj.bias + column, 0, 1, own * 4);
    if constexpr (kDims.row_scales()) {
      stage_rows<kFloats>(w.in_rows.scale.in(to) + half * kOwn, 0, in_proj.row_scale + column, 0, 1, own * 4);
    }
    if constexpr (kDims.centres()) {
      stage_rows<kFloats>(w.in_rows.sums.in(to) + half * kOwn, 0, in_proj.row_sums + column, 0, 1, own * 4);
    }
  }
  const int at = own > 0 ? first : 0;
  stage_rows<kFloats>(w.conv.in(to), kFloats, of_layer(args_.conv, layer) + at, 4LL * kInner, kTaps, own * 4);
  stage_rows<kFloats>(w.conv_bias.in(to), 0, of_layer(args_.conv_bias, layer) + at, 0, 1, own * 4);
  stage_rows<kGroup * kProjection>(
      w.x_proj.in(to), kGroup * kProjection, groups(x_proj.weights, at / 4 * product_columns(kProjection)),
      1LL * product_columns(kProjection) * kGroup, own / 4, kGroup * kProjection);
  const char* const dt_proj = of_layer(static_cast<const char*>(args_.dt_proj), layer);
  stage_rows<kGroups>(w.dt_proj.in(to), kGroups, groups(dt_proj, at), 1LL * kInner * kGroup, kRank / 4,
                      own * kGroup);
  const float* const dt_bias = of_layer(args_.dt_bias, layer);
  stage_rows<kFloats>(w.dt_rows.bias.in(to), 0, dt_bias + at, 0, 1, own * 4);
  if constexpr (kDims.row_scales()) {
    stage_rows<kFloats>(w.dt_rows.scale.in(to), 0, dt_bias + kInner + at, 0, 1, own * 4);
  }
  device::commit_copies();
}

__device__ __forceinline__ TeamWindow::Frames TeamWindow::frames(int layer, int group) const {
  const int each = divide_up(args_.seq, kRows);
  Frames f{group / each, group % each * kRows, 0};
  if (layer > 0) return f;
  // Of all frames the last `fresh` are computed; of those before, xz is in front.
  const int last = (args_.count - 1) * args_.front_step + args_.seq;
  const int first = last - args_.fresh - f.window * args_.front_step;  // the first fresh one, as a step
  f.fresh = first >= args_.seq ? kAll : most(0, least(kAll, first - f.step(0)));
  return f;
}

// Whether this team writes the frame's row in front: a frame may be in several windows.
__device__ __forceinline__ bool TeamWindow::keeps(const Frames& f, int local) const {
  return local >= kHistory && local >= f.fresh && exists(f, local) &&
         (f.window + 1 == args_.count || f.step(local) < args_.front_step);
}
__device__ __forceinline__ long long TeamWindow::fresh_row(const Frames& f, int local) const {
  const long long last = static_cast<long long>(args_.count - 1) * args_.front_step + args_.seq;
  return static_cast<long long>(f.window) * args_.front_step + f.step(local) - (last - args_.fresh);
}

// The fresh frames' observations, which may be in the host's memory: a team reads each of them once.
__device__ __forceinline__ void TeamWindow::read_obs(const Frames& f, float4 (&values)[kObsEach]) const {
#pragma unroll
  for (int k = 0; k < kObsEach; ++k) {
    const int i = obs_item(k), local = i / kWideInput;
    values[k] = make_float4(0, 0, 0, 0);
    if (i >= kAll * kWideInput || local < f.fresh || !exists(f, local)) continue;
    values[k] = reinterpret_cast<const float4*>(obs_ + fresh_row(f, local) * kInput)[i % kWideInput];
  }
}
__device__ __forceinline__ void TeamWindow::share_obs(const float4 (&values)[kObsEach]) const {
  team_sync();  // a block of a cluster that does not run yet takes no pushes
#pragma unroll
  for (int k = 0; k < kObsEach; ++k) {
    if (obs_item(k) >= kAll * kWideInput) continue;
    push_to_all(reinterpret_cast<float4*>(kPart.obs.in(act_)) + obs_item(k), values[k]);
  }
  team_sync();
}

// kCount rows of this block's columns of h, for all blocks of the team. before(row, column) is added to each
// where kAdds; keep(row, column, value) is called for each.
template <int kCount, bool kAdds, class Columns, class Before, class Keep>
__device__ __forceinline__ void TeamWindow::model_rows(const Columns& columns, const ProductMatrix& matrix,
                                                       const float* x, Before before, Keep keep) {
  constexpr int kColumns = kPart.share.rows, kItems = kCount * kColumns;
  struct End {
    float bias, scale, before;
  };
  const auto end_of = [&](int item) {
    const int column = rank_ * kColumns + item % kColumns;
    End end{0.0f, 1.0f, 0.0f};
    if (item >= kItems || column >= kModel) return end;
    end.bias = __ldg(matrix.bias + column);
    if constexpr (kDims.row_scales()) end.scale = __ldg(matrix.row_scale + column);
    if constexpr (kAdds) end.before = before(item / kColumns, column);
    return end;
  };
  float* const parts = kPart.model_parts.in(act_);
  End end = end_of(thread_);  // loaded before the sums
  columns.template sum_segments<kCount>(x, parts);
  __syncthreads();
  for (int i = thread_; i < kItems; i += THREADS) {
    const int column = rank_ * kColumns + i % kColumns;
    if (column >= kModel) continue;
    if (i != thread_) end = end_of(i);
    const float* const part = parts + i / kColumns * Columns::kTasks + i % kColumns;
    float value = __fadd_rn(scaled(add_segments<Columns::kSegs>(part, kColumns), &end.scale, 0), end.bias);
    if constexpr (kAdds) value = __fadd_rn(value, end.before);
    push_to_all(kPart.h.in(act_) + i / kColumns * kModel + column, value);
  }
  team_sync();
  // The barrier of the team waits for stores to global memory, so these come after it.
  for (int i = thread_; i < kItems; i += THREADS) {
    const int column = rank_ * kColumns + i % kColumns;
    if (column < kModel) keep(i / kColumns, column, kPart.h.in(act_)[i / kColumns * kModel + column]);
  }
}

// The input projection of the fresh frames.
__device__ __forceinline__ void TeamWindow::input(const Frames& f, const InputColumns& columns) {
  model_rows<kAll, false>(
      columns, args_.input, kPart.obs.in(act_), [](int, int) { return 0.0f; },
      [&](int local, int column, float value) {
        if (keeps(f, local)) put(args_.front_h, kModel, fresh_row(f, local), column, value);
      });
}

// h before this layer: the output of the layer before, added to its input.
__device__ __forceinline__ void TeamWindow::out_proj(int layer, const Frames& f, const OutColumns& columns) {
  auto* const y = reinterpret_cast<float4*>(kPart.y.in(act_));
  for (int i = thread_; i < kAll * (kInner / 4); i += THREADS) {
    const int local = i / (kInner / 4);
    y[i] = make_float4(0, 0, 0, 0);
    if (!exists(f, local)) continue;
    y[i] = reinterpret_cast<const float4*>(args_.y + row(f, local) * kInner)[i % (kInner / 4)];
  }
  __syncthreads();
  model_rows<kAll, true>(
      columns, of_layer(args_.out_proj, layer - 1), kPart.y.in(act_),
      [&](int local, int column) {
        return exists(f, local) ? layer_h(layer - 1, f.window, f.step(local))[column] : 0.0f;
      },
      [&](int local, int column, float value) {
        if (local < kHistory || !exists(f, local)) return;
        layer_h(layer, f.window, f.step(local))[column] = value;
      });
}

// The norm's factors of the first `count` rows of h, a warp for each.
__device__ __forceinline__ void TeamWindow::norms(int count) {
  for (int i = thread_ / 32; i < count; i += THREADS / 32) {
    const NormFactors norm = norm_factors(kPart.h.in(act_) + i * kModel, args_.epsilon);
    if (thread_ % 32 != 0) continue;
    kPart.norm_scale.in(act_)[i] = norm.scale;
    kPart.norm_mean.in(act_)[i] = norm.mean;
  }
}

}  // namespace policy
}  // namespace exphil
