// The last outputs of windows of one agent, in one launch, by teams of blocks: what policy/window.cu does,
// with the same bits and fewer barriers of the grid. A team takes a few frames from the observation (or from
// the output of the layer before) to dt, B and C. For that it computes x of the three frames before them
// again, which the convolution reads. So the teams exchange values only before and after the state update,
// which needs all frames of a channel. Within a team (a cluster) blocks share the columns of each product,
// and write to each other's shared memory. Launched by c_src/cuda/policy/window.cpp, cooperatively.
//
// Compiled with the dimensions and TEAM (blocks in a team, a power of two), THREADS, ROWS (frames of a team
// at a time), CLUSTER (0 for teams of one block only).
#include "kernels/policy/window_team_input.cuh"

namespace exphil {
namespace policy {

// Sums over segments of this block's columns of x for all frames, and of z for the team's own frames.
template <bool kGates>
__device__ __forceinline__ void TeamWindow::in_proj_sums() {
  constexpr int kTasks = kOwn * kModelSegments;
  const auto* const weights = reinterpret_cast<const Group*>(kPart.weights.in_proj.in(staged_));
  const float* const h = kPart.h.in(act_);
  float* const parts = kPart.in_parts.in(act_);
  for (int task = thread_; task < kTasks; task += THREADS) {
    const int segment = task / kOwn;
    float x[kAll] = {}, z[kGates ? kRows : 1] = {};
#pragma unroll
    for (int j = 0; j < kSegment / 4; ++j) {
      const Group* const w = weights + (segment * (kSegment / 4) + j) * 2 * kOwn + task % kOwn;
      const float4 of_x = widen(w[0]), of_z = kGates ? widen(w[kOwn]) : of_x;
#pragma unroll
      for (int i = 0; i < kAll; ++i) {
        const float4 value = *reinterpret_cast<const float4*>(h + i * kModel + segment * kSegment + 4 * j);
        x[i] = dot4(of_x, value, x[i]);
        if constexpr (kGates) {
          if (i >= kHistory) z[i - kHistory] = dot4(of_z, value, z[i - kHistory]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kAll; ++i) parts[i * kTasks + task] = x[i];
    if constexpr (kGates) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) parts[(kAll + i) * kTasks + task] = z[i];
    }
  }
}

// x of all frames in shared memory, and silu(z) of the team's own frames. Of the last layer, z is needed for
// the last frame only; of the first one a session keeps it.
__device__ __forceinline__ void TeamWindow::in_proj(int layer, const Frames& f) {
  constexpr int kTasks = kOwn * kModelSegments;
  const bool gates = layer == 0 || layer + 1 < kLayers || f.begin + kRows >= args_.seq;
  norms(kAll);
  if (gates) {
    in_proj_sums<true>();
  } else {
    in_proj_sums<false>();
  }
  __syncthreads();
  ProductArguments p{};
  p.row_scale = kPart.weights.in_rows.scale.in(staged_), p.row_sums = kPart.weights.in_rows.sums.in(staged_);
  const float* const bias = kPart.weights.in_rows.bias.in(staged_);
  for (int i = thread_; i < (gates ? kAll + kRows : kAll) * kOwn; i += THREADS) {
    const int half = i / kOwn >= kAll ? 1 : 0, c = i % kOwn, at = half * kOwn + c;
    const int local = half == 0 ? i / kOwn : i / kOwn - kAll + kHistory;
    const int column = half * kInner + rank_ * kOwn + c;
    if (rank_ * kOwn + c >= kInner || local < f.fresh) continue;
    const float* const part = kPart.in_parts.in(act_) + i / kOwn * kTasks + c;
    const float sum = completed<InProjEpilogue>(add_segments<kModelSegments>(part, kOwn), p, at,
                                                kPart.norm_mean.in(act_)[local]);
    const float value = InProjEpilogue::apply(sum, bias[at], kPart.norm_scale.in(act_)[local], p, 0, column);
    if (half == 0) kPart.x.in(act_)[local * kOwn + c] = value;
    keep_in_proj(layer, f, local, column, value);
  }
}

// Where the state update, or a later frame of a session, reads x and silu(z).
__device__ __forceinline__ void TeamWindow::keep_in_proj(int layer, const Frames& f, int local, int column,
                                                         float value) {
  if (layer == 0) {
    if ((column < kInner && args_.slots == 0) || !keeps(f, local)) return;
    put(args_.front_xz, 2 * kInner, fresh_row(f, local), column, value);
  } else if (column >= kInner && exists(f, local)) {
    args_.xz[row(f, local) * 2 * kInner + column] = value;
  }
}

// x of the frames whose xz is in front.
__device__ __forceinline__ void TeamWindow::load_x(const Frames& f) {
  for (int i = thread_; i < f.fresh * kOwn; i += THREADS) {
    const int local = i / kOwn, channel = rank_ * kOwn + i % kOwn;
    if (channel >= kInner || !exists(f, local)) continue;
    kPart.x.in(act_)[i] = xz_row(0, f.window, f.step(local))[channel];
  }
}

// u = silu(conv(x)) of the team's own frames.
__device__ __forceinline__ void TeamWindow::convolve_rows(const Frames& f) {
  constexpr WindowTeamWeights w = kPart.weights;
  const float* const x = kPart.x.in(act_);
  for (int i = thread_; i < kRows * kOwn; i += THREADS) {
    const int own = i / kOwn, c = i % kOwn;
    if (rank_ * kOwn + c >= kInner) continue;
    float taps[kTaps];
#pragma unroll
    for (int t = 0; t < kTaps; ++t) taps[t] = exists(f, own + t) ? x[(own + t) * kOwn + c] : 0.0f;
    const float u = convolve(taps, w.conv.in(staged()) + c, kOwn, w.conv_bias.in(staged())[c]);
    kPart.u.in(act_)[i] = u;
  }
}

// Each block has the segment sums of its channels. Every block needs dt's part of the projection; B and C are
// completed by one block for each frame.
__device__ __forceinline__ void TeamWindow::project(int layer, const Frames& f) {
  constexpr int kTasks = kOwnSegments * kProjection;
  const auto* const weights = reinterpret_cast<const Group*>(kPart.weights.x_proj.in(staged()));
  float* const parts = kPart.projection_parts.in(act_);
  for (int i = thread_; i < kTasks * kRows; i += THREADS) {
    const int own = i / kTasks, own_segment = i % kTasks / kProjection, j = i % kProjection;
    const int segment = rank_ * kOwnSegments + own_segment;
    if (segment >= kInnerSegments) continue;
    const float* const u = kPart.u.in(act_) + own * kOwn + own_segment * kSegment;
    float sum = 0.0f;
#pragma unroll
    for (int g = 0; g < kSegment / 4; ++g) {
      sum = dot4(widen(weights[(own_segment * (kSegment / 4) + g) * kProjection + j]),
                 reinterpret_cast<const float4*>(u)[g], sum);
    }
    float* const place = parts + (own * kInnerSegments + segment) * kProjection + j;
    if (j < kRank) {
      push_to_all(place, sum);
    } else {
      push(place, own % TEAM, sum);
    }
  }
  team_sync();
  for (int i = thread_; i < kRows * kOwn; i += THREADS) {  // after the barrier, as in model_rows()
    const int own = i / kOwn, channel = rank_ * kOwn + i % kOwn;
    if (channel >= kInner || !exists(f, own + kHistory)) continue;
    args_.u[row(f, own + kHistory) * kInner + channel] = kPart.u.in(act_)[i];
  }
  const ProductMatrix matrix = of_layer(args_.x_proj, layer);
  for (int i = thread_; i < kProjection * kRows; i += THREADS) {
    const int own = i / kProjection, j = i % kProjection;
    if (j >= kRank && own % TEAM != rank_) continue;
    float sum = add_segments<kInnerSegments>(parts + own * kInnerSegments * kProjection + j, kProjection);
    sum = scaled(sum, matrix.row_scale, j);
    if constexpr (kForm.projection_bias) sum = __fadd_rn(sum, __ldg(matrix.bias + j));
    if (j < kRank) kPart.projection.in(act_)[own * kRank + j] = sum;
    if (j < kRank || !exists(f, own + kHistory)) continue;
    args_.projection[row(f, own + kHistory) * kProjection + j] = sum;
  }
  __syncthreads();
}

// dt of this block's channels, and its mean where the form has one.
__device__ __forceinline__ void TeamWindow::activate_all_dt(const Frames& f) {
  constexpr WindowTeamWeights w = kPart.weights;
  float* const parts = kPart.dt_parts.in(act_);
  for (int i = thread_; i < kRows * kOwn; i += THREADS) {  // a warp has whole segments
    const int own = i / kOwn, c = i % kOwn, channel = rank_ * kOwn + c;
    if (channel >= kInner) continue;
    const float dt = activated_dt(w.dt_proj.in(staged()), kOwn, w.dt_rows.scale.in(staged()),
                                  kPart.projection.in(act_) + own * kRank, c, w.dt_rows.bias.in(staged())[c]);
    if (exists(f, own + kHistory)) args_.active_dt[row(f, own + kHistory) * kInner + channel] = dt;
    if constexpr (kForm.mean_dt) {
      const float part = segment_of_dt(dt, channel);
      if (c % kSegment == 0) push(parts + own * kInnerSegments + channel / kSegment, own % TEAM, part);
    }
  }
  if constexpr (kForm.mean_dt) {
    team_sync();
    for (int own = thread_; own < kRows; own += THREADS) {
      if (own % TEAM != rank_ || !exists(f, own + kHistory)) continue;
      args_.active_dt[rows_ * kInner + row(f, own + kHistory)] = mean_of_dt(parts + own * kInnerSegments);
    }
  }
}

// From x to dt, B and C of the team's frames.
__device__ __forceinline__ void TeamWindow::finish_frames(int layer, const Frames& f) {
  __syncthreads();
  convolve_rows(f);
  __syncthreads();
  project(layer, f);
  activate_all_dt(f);
}

__device__ __forceinline__ void TeamWindow::first_layer() {
  const InputColumns columns(args_.input.weights, rank_, thread_);
  for (int group = team_; group < groups(); group += teams_) {
    const Frames f = frames(0, group);
    float4 obs[kObsEach];
    read_obs(f, obs);
    if (group == team_) stage(0);
    share_obs(obs);
    if (f.fresh < kAll) input(f, columns);
    if (group == team_) await_staged();
    if (f.fresh < kAll) in_proj(0, f);
    load_x(f);
    finish_frames(0, f);
  }
}

__device__ __forceinline__ void TeamWindow::later_layer(int layer, const OutColumns& columns) {
  for (int group = team_; group < groups(); group += teams_) {
    const Frames f = frames(layer, group);
    out_proj(layer, f, columns);
    if (group == team_) await_staged();
    in_proj(layer, f);
    finish_frames(layer, f);
  }
}

// The last layer's output of a window's last frame, and the heads.
__device__ __forceinline__ void TeamWindow::answer(int window, const OutColumns& columns,
                                                   const HeadColumns& head) {
  constexpr int kColumns = kPart.share.heads;
  float* const parts = kPart.model_parts.in(act_);
  float* const y = kPart.y.in(act_);
  for (int i = thread_; i < kInner; i += THREADS) y[i] = args_.y[static_cast<long long>(window) * kInner + i];
  __syncthreads();
  model_rows<1, true>(
      columns, of_layer(args_.out_proj, kLayers - 1), y,
      [&](int, int column) { return layer_h(kLayers - 1, window, args_.seq - 1)[column]; },
      [](int, int, float) {});
  norms(1);
  if constexpr (kHidden > 0) hidden_layer();
  head.template sum_segments<1>(kHidden > 0 ? kPart.hidden.in(act_) : kPart.h.in(act_), parts);
  __syncthreads();
  for (int i = thread_; i < kColumns; i += THREADS) {
    const int column = rank_ * kColumns + i;
    if (column >= kOutput) continue;
    const float sum = add_segments<HeadColumns::kSegs>(parts + i, kColumns);
    store(window, column, finish_head<HeadOf<kHidden == 0>>(args_.head, sum, column));
  }
}

// The hidden values of two-layer heads, for all blocks of the team.
__device__ __forceinline__ void TeamWindow::hidden_layer() {
  constexpr int kColumns = HiddenColumns::kOwnColumns;
  float* const parts = kPart.model_parts.in(act_);
  const HiddenColumns columns(args_.hidden_layer.weights, rank_, thread_);
  columns.sum_segments<1>(kPart.h.in(act_), parts);
  __syncthreads();
  for (int i = thread_; i < kColumns; i += THREADS) {
    const int column = rank_ * kColumns + i;
    if (column >= kHidden) continue;
    const float sum = add_segments<HiddenColumns::kSegs>(parts + i, kColumns);
    push_to_all(kPart.hidden.in(act_) + column,
                finish_head<HeadEpilogue<true>>(args_.hidden_layer, sum, column));
  }
  team_sync();
}

// A sum of the heads or of their hidden layer.
template <class Epilogue>
__device__ __forceinline__ float TeamWindow::finish_head(const ProductMatrix& matrix, float sum,
                                                         int column) const {
  ProductArguments p{};
  static_cast<ProductMatrix&>(p) = matrix;
  sum = completed<Epilogue>(sum, p, column, kPart.norm_mean.in(act_)[0]);
  return Epilogue::apply(sum, __ldg(matrix.bias + column), kPart.norm_scale.in(act_)[0], p, 0, column);
}

__device__ __forceinline__ void TeamWindow::run() {
  first_layer();
#pragma unroll 1
  for (int l = 0; l + 1 < kLayers; ++l) {
    unsigned before = arrive_at_barrier(args_.barrier);
    stage(l + 1);  // arrives during the state update
    wait_at_barrier(args_.barrier, before);
    advance_time(l, act_);
    before = arrive_at_barrier(args_.barrier);
    const OutColumns columns(of_layer(args_.out_proj, l).weights, rank_, thread_);
    wait_at_barrier(args_.barrier, before);
    later_layer(l + 1, columns);
  }
  grid_barrier(args_.barrier);
  advance_time(kLayers - 1, act_);
  const unsigned before = arrive_at_barrier(args_.barrier);
  if (team_ >= args_.count) return;
  const OutColumns columns(of_layer(args_.out_proj, kLayers - 1).weights, rank_, thread_);
  const HeadColumns head(args_.head.weights, rank_, thread_);
  wait_at_barrier(args_.barrier, before);
  for (int window = team_; window < args_.count; window += teams_) {
    answer(window, columns, head);
    team_sync();  // of which the last one's memory is no longer read
  }
}

}  // namespace policy
}  // namespace exphil

// grid: teams * TEAM blocks; dynamic shared memory: kPart.
extern "C" __global__ void TEAM_SHAPE __launch_bounds__(THREADS, 1)
    policy_window_team(const __grid_constant__ exphil::policy::WindowArguments args,
                       const __grid_constant__ exphil::policy::InlineFrame frame) {
  using namespace exphil::policy;
  TeamWindow(args, frame, reinterpret_cast<char*>(dynamic_shared())).run();
}
