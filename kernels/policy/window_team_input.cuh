// What a team begins a layer with: its weights in shared memory, its frames' observations or outputs of the
// layer before, and the rows of the hidden values. Part of policy/window_team.cu.
#pragma once

#include "kernels/policy/window_team.cuh"

namespace exphil {
namespace policy {

// ---- weights ----

// kCount rows of kRun bytes each. Of the first `rows` rows the first `bytes` bytes exist; the rest is zero. A
// thread copies the same 16 bytes of every few rows, so that its addresses differ by constants.
template <int kRun, int kCount>
__device__ __forceinline__ void TeamWindow::stage_rows(void* to, int to_stride, const void* from, int stride,
                                                       int rows, int bytes) {
  static_assert(kRun % 16 == 0, "copied in 16 bytes");
  constexpr int kWide = least(power_of_two_above(kRun / 16), power_of_two_within(THREADS));
  constexpr int kAtOnce = most(1, least(kCount, THREADS / kWide));  // rows
  const int first = thread_ / kWide;
  if (first >= kAtOnce) return;
#pragma unroll
  for (int at = thread_ % kWide * 16; at < kRun; at += kWide * 16) {
    char* const place = static_cast<char*>(to) + first * to_stride + at;
    const char* const source = static_cast<const char*>(from) + 1LL * first * stride + at;
#pragma unroll 8
    for (int i = 0; i < divide_up(kCount, kAtOnce); ++i) {
      const int row = first + i * kAtOnce;
      if (kCount % kAtOnce != 0 && row >= kCount) break;
      const bool exists = row < rows && at < bytes;
      device::copy_async<16>(place + i * kAtOnce * to_stride,
                             exists ? source + 1LL * i * kAtOnce * stride : static_cast<const char*>(from),
                             exists);
    }
  }
}

constexpr int kGroupBytes = 4 * kNetwork.weight_bytes();

// This block's columns of an output, of a product that is divided by columns.
template <int kAt, int kProduct, int kOut>
__device__ __forceinline__ void TeamWindow::stage_columns(const ProductMatrix& from) {
  using Own = OwnOf<kProduct>;
  constexpr StagedPhase w = kPart.weights.phases[kAt];
  constexpr int kSize = size_of(Own::vector(kOut)), kOwn = own_of(Own::vector(kOut));
  constexpr int kFirst = Own::first(kOut), kRowsOfProduct = kNetwork.rows(Own::kP);
  constexpr int kStride = Own::kP.is_short ? kRowsOfProduct : product_columns(kRowsOfProduct);
  const int own = own_count<kOwn, kSize>();
  const int column = first_row(kNetwork, Own::kP, kOut) + (own > 0 ? rank_ * kOwn : 0);
  stage_rows<kGroupBytes * kOwn, size_of(Own::kP.in) / 4>(
      w.matrix.in(staged_) + kFirst * kGroupBytes, kGroupBytes * Own::kColumns,
      static_cast<const char*>(from.weights) + column * kGroupBytes, kStride * kGroupBytes,
      size_of(Own::kP.in) / 4, own * kGroupBytes);
  const auto stage_values = [&](const Part<float>& to, const float* values) {
    stage_rows<4 * kOwn, 1>(to.in(staged_) + kFirst, 0, values + column, 0, 1, own * 4);
  };
  stage_values(w.rows.bias, from.bias);
  if constexpr (kNetwork.row_scales()) stage_values(w.rows.scale, from.row_scale);
  if constexpr (kNetwork.centres(Own::kP)) stage_values(w.rows.sums, from.row_sums);
}

template <int kAt>
__device__ __forceinline__ void TeamWindow::stage_phase(int layer) {
  constexpr Phase kPhase = kNetwork.layer.phases[kAt];
  constexpr StagedPhase w = kPart.weights.phases[kAt];
  const ProductMatrix from = weights<kAt>(layer);
  if constexpr (kPhase.kind == Kind::convolution) {
    constexpr Convolution kC = kNetwork.convolutions[kPhase.index];
    constexpr int kSize = size_of(kC.in), kOwn = own_of(kC.in);
    const int own = own_count<kOwn, kSize>(), at = own > 0 ? rank_ * kOwn : 0;
    stage_rows<4 * kOwn, kC.taps>(w.channels.in(staged_), 4 * kOwn,
                                  static_cast<const float*>(from.weights) + at, 4 * kSize, kC.taps, own * 4);
    stage_rows<4 * kOwn, 1>(w.values.in(staged_), 0, from.bias + at, 0, 1, own * 4);
  } else if constexpr (kPhase.kind == Kind::product) {
    constexpr Product kP = kNetwork.products[kPhase.index];
    if constexpr (kAt > 0 && !kP.is_short) {  // divided by depth
      constexpr int kRun = kGroupBytes * kNetwork.rows(kP), kOwn = own_of(kP.in);
      constexpr int kStride = kGroupBytes * product_columns(kNetwork.rows(kP));
      const int own = own_count<kOwn, size_of(kP.in)>();
      const char* const first =
          static_cast<const char*>(from.weights) + (own > 0 ? rank_ * kOwn / 4 : 0) * kStride;
      stage_rows<kRun, kOwn / 4>(w.matrix.in(staged_), kRun, first, kStride, own / 4, kRun);
    } else {
      for_each_number<0, kP.outputs>(
          [&](auto out) { stage_columns<kAt, kPhase.index, decltype(out)::value>(from); });
    }
  }
}

// Starts loading this block's weights of a layer. Those of the layer before are no longer read.
__device__ __forceinline__ void TeamWindow::stage(int layer) {
  for_each_number<0, kWindow.rows_end>([&](auto at) { stage_phase<decltype(at)::value>(layer); });
  device::commit_copies();
}

// ---- frames ----

__device__ __forceinline__ TeamWindow::Frames TeamWindow::frames(int layer, int group) const {
  const int each = divide_up(args_.seq, kRows);
  Frames f{layer, group / each, group % each * kRows, 0};
  if (layer > 0) return f;
  // Of all frames the last `fresh` are computed; the front has those before.
  const int last = (args_.count - 1) * args_.front_step + args_.seq;
  const int first = last - args_.fresh - f.window * args_.front_step;  // the first fresh one, as a step
  f.fresh = first >= args_.seq ? kAll : most(0, least(kAll, first - f.step(0)));
  return f;
}

// Whether this team writes the frame's row in the front: a frame may be in several windows.
__device__ __forceinline__ bool TeamWindow::keeps(const Frames& f, int local) const {
  return local >= kFramesBefore && local >= f.fresh && exists(f, local) &&
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
    const int i = obs_item(k), local = i / kWideFrame;
    values[k] = make_float4(0, 0, 0, 0);
    if (i >= kAll * kWideFrame || local < f.fresh || !exists(f, local)) continue;
    values[k] = reinterpret_cast<const float4*>(obs_ + fresh_row(f, local) * kFrameSize)[i % kWideFrame];
  }
}
__device__ __forceinline__ void TeamWindow::share_obs(const float4 (&values)[kObsEach]) const {
  team_sync();  // a block of a cluster that does not run yet takes no pushes
#pragma unroll
  for (int k = 0; k < kObsEach; ++k) {
    if (obs_item(k) >= kAll * kWideFrame) continue;
    push_to_all(reinterpret_cast<float4*>(own<kNetwork.frame>()) + obs_item(k), values[k]);
  }
  team_sync();
}

// ---- the hidden values ----

// kCount rows of this block's columns of the hidden values, for all blocks of the team. before(row, column)
// is added to each where the product adds; keep(row, column, value) is called for each.
template <int kCount, int kProduct, class Before, class Keep>
__device__ __forceinline__ void TeamWindow::hidden_rows(const OwnColumns<kProduct>& columns,
                                                        const ProductMatrix& matrix, const float* x,
                                                        Before before, Keep keep) {
  using Columns = OwnColumns<kProduct>;
  constexpr bool kAdds = kNetwork.products[kProduct].adds;
  constexpr int kColumns = Columns::kColumns, kItems = kCount * kColumns;
  struct End {
    float bias, scale, before;
  };
  const auto has_column = [](int column) { return kColumns * TEAM == kHiddenSize || column < kHiddenSize; };
  const auto end_of = [&](int item) {
    const int column = rank_ * kColumns + item % kColumns;
    End end{0.0f, 1.0f, 0.0f};
    if (item >= kItems || !has_column(column)) return end;
    end.bias = __ldg(matrix.bias + column);
    if constexpr (kNetwork.row_scales()) end.scale = __ldg(matrix.row_scale + column);
    if constexpr (kAdds) end.before = before(item / kColumns, column);
    return end;
  };
  float* const parts = kPart.parts.in(act_);
  End end = end_of(thread_);  // loaded before the sums
  columns.template sum_segments<kCount>(x, parts);
  __syncthreads();
  for (int i = thread_; i < kItems; i += THREADS) {
    const int column = rank_ * kColumns + i % kColumns;
    if (!has_column(column)) continue;
    if (i != thread_) end = end_of(i);
    const float* const part = parts + i / kColumns * Columns::kTasks + i % kColumns;
    float value = __fadd_rn(scaled(add_segments<Columns::kSegs>(part, kColumns), &end.scale, 0), end.bias);
    value = activated<kProduct, 0>(value);
    if constexpr (kAdds) value = __fadd_rn(value, end.before);
    push_to_all(own<kNetwork.hidden>() + i / kColumns * kHiddenSize + column, value);
  }
  team_sync();
  // The barrier of the team waits for stores to global memory, so these come after it.
  for (int i = thread_; i < kItems; i += THREADS) {
    const int row = i / kColumns, column = rank_ * kColumns + i % kColumns;
    if (has_column(column)) keep(row, column, own<kNetwork.hidden>()[row * kHiddenSize + column]);
  }
}

// The input block of the fresh frames.
__device__ __forceinline__ void TeamWindow::input(const Frames& f, const InputColumns& columns) {
  hidden_rows<kAll>(
      columns, args_.weights[0], own<kNetwork.frame>(), [](int, int) { return 0.0f; },
      [&](int local, int column, float value) {
        if (keeps(f, local)) put(args_.front_hidden, kHiddenSize, fresh_row(f, local), column, value);
      });
}

// The hidden values before this layer: the output of the layer before, added to its input.
__device__ __forceinline__ void TeamWindow::closing(const Frames& f, const ClosingColumns& columns) {
  auto* const y = reinterpret_cast<float4*>(own<kClosed>());
  for (int i = thread_; i < kAll * (kClosedSize / 4); i += THREADS) {
    const int local = i / (kClosedSize / 4);
    y[i] = make_float4(0, 0, 0, 0);
    if (!exists(f, local)) continue;
    y[i] = reinterpret_cast<const float4*>(memory<kClosed>(row(f, local)))[i % (kClosedSize / 4)];
  }
  __syncthreads();
  hidden_rows<kAll>(
      columns, weights<kLastPhase>(f.layer - 1), own<kClosed>(),
      [&](int local, int column) {
        return exists(f, local) ? layer_hidden(f.layer - 1, f.window, f.step(local))[column] : 0.0f;
      },
      [&](int local, int column, float value) {
        if (local < kFramesBefore || !exists(f, local)) return;
        layer_hidden(f.layer, f.window, f.step(local))[column] = value;
      });
}

// The factors of a product's norm of the first `count` rows of the hidden values, a warp for each.
template <int kProduct>
__device__ __forceinline__ void TeamWindow::norms(int count) {
  constexpr Product kP = kNetwork.products[kProduct];
  if constexpr (kP.norm != Norm::none) {
    for (int i = thread_ / 32; i < count; i += THREADS / 32) {
      const NormFactors norm = norm_factors<kP.norm, values_of(kP.in), size_of(kP.in)>(
          own<kNetwork.hidden>() + i * kHiddenSize, __uint_as_float(kP.epsilon));
      if (thread_ % 32 != 0) continue;
      kPart.norm_scale.in(act_)[i] = norm.scale;
      kPart.norm_mean.in(act_)[i] = norm.mean;
    }
  }
}

}  // namespace policy
}  // namespace exphil
