// One frame of the entire policy for one agent or a few, in one launch: a team of blocks (policy/team.cuh)
// processes AGENTS agents at a time through every layer. Launched by c_src/cuda/policy/team.cpp.
//
// For one agent it is bound by latency: three exchanges per layer, each after a chain of dependent additions.
// So a block starts loading all of its weights at the beginning (bulk copies into shared memory where STAGED,
// in_proj directly into registers), dot products are split into segments of 32 over all threads
// (policy/dot.cuh), and between the phases only the recurrent state goes to memory.
//
// Compiled with the dimensions and TEAM (blocks in a team, a power of two), THREADS, AGENTS (a power of two),
// CLUSTER, STAGED, ARMED. With ARMED it is launched before the observation of its frame is there and waits
// for it (policy/armed.cuh), so that neither the launch nor the first loads of weights are part of the
// frame's time.
#include "kernels/policy/step.cuh"

#if ARMED
#include "kernels/policy/armed.cuh"
#endif

namespace exphil {
namespace policy {

// x rows and z rows of in_proj. The norm of h scales the sums, because its weights are in the columns.
__device__ __forceinline__ void Step::in_proj(int layer, int next_layer) {
  if (!ARMED || layer > 0) load_states(layer);  // await() has loaded those of the first layer
  norm_scales();
  if constexpr (kHoldInProj) {
#pragma unroll
    for (int i = 0; i < kInPer; ++i) {
      const int task = thread() + i * THREADS;
      if (task >= kInTasks) continue;
      const float* values = &act_.h[0][0] + task / (2 * kOwn) * kSegment;
      float sum[AGENTS] = {};
#pragma unroll
      for (int j = 0; j < kSegment / 4; ++j) {
        const float4 weight = widen(held_[i][j]);
#pragma unroll
        for (int a = 0; a < AGENTS; ++a) {
          sum[a] = dot4(weight, *reinterpret_cast<const float4*>(values + a * kModel + 4 * j), sum[a]);
        }
      }
#pragma unroll
      for (int a = 0; a < AGENTS; ++a) act_.parts[a * kInTasks + task] = sum[a];
    }
    hold_in_proj(next_layer);
  } else {
    const void* weights = kTeam.in_proj.weight.in(share_ + kTeam.in_proj_at(layer));
    segment_sums<2 * kOwn, kModelSegments, false>(
        weights, &act_.h[0][0], kModel,
        [&](int a, int task, float sum) { act_.parts[a * kInTasks + task] = sum; });
  }
}

// u = silu(conv(x)) and silu(z) of this block's channels; shifts the convolution's history by one.
__device__ __forceinline__ void Step::convolve_rows(const char* w, int layer) {
#pragma unroll
  for (int k = 0; k < kConvPer; ++k) {
    const int item = thread() + k * THREADS;
    if (item >= kConvItems) continue;
    const int agent = item / (2 * kOwn), row = item % (2 * kOwn);
    const float sum = row_sum<kModelSegments>(agent, row, 2 * kOwn);
    const float value = normed_value(sum, agent, kTeam.layer.in_rows, w, row);
    if (row >= kOwn) {
      act_.gate[agent][row - kOwn] = silu(value);
      continue;
    }
    const float* history = kHoldHistory ? nullptr : conv_state(act_.from[agent], layer, row);
    float taps[kTaps];
#pragma unroll
    for (int t = 0; t < kHistory; ++t) {
      taps[t] = kHoldHistory ? history_[k][t] : history == nullptr ? 0.0f : history[t * kInner];
    }
    taps[kHistory] = value;
    act_.u[agent][row] = convolve(taps, kTeam.layer.conv.in(w) + row, kOwn, kTeam.layer.conv_bias.in(w)[row]);
    float* next = conv_state(act_.to[agent], layer, row);
    if (next == nullptr) continue;
#pragma unroll
    for (int t = 0; t < kHistory; ++t) next[t * kInner] = taps[t + 1];
  }
}

// dt, B and C of every channel: each block has the segment sums of its channels, and every block adds them
// all up.
__device__ __forceinline__ void Step::project(const char* w) {
  segment_sums<kProjection, kOwnSegments, true>(
      kTeam.layer.x_proj.in(w), &act_.u[0][0], kOwn, [&](int a, int task, float sum) {
        const int segment = rank_ * kOwnSegments + task / kProjection;
        if (segment < kInnerSegments) {
          board_.push(&act_.projection_parts[a][segment][task % kProjection], sum, 0, 1);
        }
      });
  board_.exchange(&act_.projection_parts[0][0][0], AGENTS * kInnerSegments * kProjection);
  for (int i = thread(); i < AGENTS * kProjection; i += THREADS) {
    const int agent = i / kProjection, row = i % kProjection;
    float sum = add_segments<kInnerSegments>(&act_.projection_parts[agent][0][row], kProjection);
    sum = scaled(sum, kTeam.layer.projection_rows.scale.in(w), row);
    if constexpr (kForm.projection_bias) sum = __fadd_rn(sum, kTeam.layer.projection_rows.bias.in(w)[row]);
    act_.projection[agent][row] = sum;
  }
  __syncthreads();
  activate_all_dt(w);
}

// dt of this block's channels. Where the form has their mean, every block gets the sum of each segment.
__device__ __forceinline__ void Step::activate_all_dt(const char* w) {
  for (int i = thread(); i < AGENTS * kOwn; i += THREADS) {  // a warp has whole segments
    const int agent = i / kOwn, c = i % kOwn;
    const float sum = dot_short<kRank>(reinterpret_cast<const Group*>(kTeam.layer.dt_proj.in(w)) + c, kOwn,
                                       reinterpret_cast<const float4*>(act_.projection[agent]));
    const float dt = activate_dt(plain_value(sum, kTeam.layer.dt_rows, w, c));
    act_.dt[agent][c] = dt;
    if constexpr (kForm.mean_dt) {
      const int channel = rank_ * kOwn + c;
      const float part = segment_of_dt(dt, channel);
      if (channel < kInner) {
        board_.push(act_.dt_parts + agent * kInnerSegments + channel / kSegment, part, c % kSegment,
                    kSegment);
      }
    }
  }
  if constexpr (kForm.mean_dt) {
    board_.exchange(act_.dt_parts, AGENTS * kInnerSegments);
  } else {
    __syncthreads();
  }
}

// The state update of this block's channels; pushes the gated output to all blocks.
__device__ __forceinline__ void Step::advance_states(const char* w, int layer) {
#pragma unroll
  for (int k = 0; k < kSsmPer; ++k) {
    const int item = thread() + k * THREADS;
    if (item >= kSsmItems) continue;
    const int agent = item / (kOwn * kLanes), c = item / kLanes % kOwn, lane = item % kLanes;
    const float* state = kHoldStates ? nullptr : ssm_state(act_.from[agent], layer, c, lane);
    float h[kPerLane], a[kPerLane];
#pragma unroll
    for (int n = 0; n < kPerLane; ++n) {
      h[n] = kHoldStates ? states_[k][n] : state == nullptr ? 0.0f : state[n];
      a[n] = kTeam.layer.a.in(w)[(c * kLanes + lane) * kPerLane + n];
    }
    const float* bc = act_.projection[agent] + kRank + lane * kPerLane;
    const float dt = act_.dt[agent][c], u = act_.u[agent][c];
    const float input_dt = kForm.mean_dt ? mean_of_dt(act_.dt_parts + agent * kInnerSegments) : dt;
    const float part = advance(h, a, bc, bc + kState, dt, __fmul_rn(input_dt, u), kForm.carried_decays_input);
    const float y = gate(add_lanes(part), kTeam.layer.d.in(w)[c], u, act_.gate[agent][c]);
    const int channel = rank_ * kOwn + c;
    if (channel < kInner) board_.push(&act_.y[agent][channel], y, lane, kLanes);
    float* next = ssm_state(act_.to[agent], layer, c, lane);
    if (next == nullptr) continue;
#pragma unroll
    for (int n = 0; n < kPerLane; ++n) next[n] = h[n];
  }
  board_.exchange(&act_.y[0][0], AGENTS * kInner);
}

__device__ __forceinline__ void Step::layer(int index, int next_index) {
  in_proj(index, next_index);
  const char* w = section(2 + index, kTeam.layer_at(index));
  __syncthreads();
  convolve_rows(w, index);
  __syncthreads();
  project(w);
  advance_states(w, index);
  for (int i = thread(); i < AGENTS * kRows; i += THREADS) {
    const int row = rank_ * kRows + i % kRows;
    act_.residual[i / kRows][i % kRows] = row < kModel ? act_.h[i / kRows][row] : 0.0f;
  }
  part_sums<kRows, kInnerSegments>(kTeam.layer.out_proj.in(w), &act_.y[0][0], kInner);
  __syncthreads();
  model_rows<kInnerSegments, true>(kTeam.layer.out_rows, w);
}

// pushes: every block is ready for them.
__device__ __forceinline__ void Step::input(bool pushes) {
  const char* w = section(0, kTeam.input_at);
  part_sums<kRows, kInputSegments>(kTeam.input.weight.in(w), &act_.obs[0][0], kInput);
  if (pushes) {
    __syncthreads();
  } else {
    board_.sync();
  }
  model_rows<kInputSegments, false>(kTeam.input.rows, w);
}

// The hidden values of two-layer heads, pushed to every block.
template <int kHiddenRows>
__device__ __forceinline__ void Step::hidden_layer(const char* w) {
  if constexpr (kHiddenRows > 0) {
    part_sums<kHiddenRows, kModelSegments>(kTeam.head.hidden.in(w), &act_.h[0][0], kModel);
    __syncthreads();
    constexpr int kSharers = least(TEAM, power_of_two_within(THREADS / (AGENTS * kHiddenRows)));
    for (int i = thread(); i < AGENTS * kHiddenRows * kSharers; i += THREADS) {
      const int sharer = i / (AGENTS * kHiddenRows), agent = i / kHiddenRows % AGENTS, row = i % kHiddenRows;
      const int place = rank_ * kHiddenRows + row;
      if (place >= kHidden) continue;
      const float sum = row_sum<kModelSegments>(agent, row, kHiddenRows);
      const float value = head_value(sum, agent, kTeam.head.hidden_rows, w, row);
      board_.push(act_.hidden + agent * kHidden + place, fmaxf(value, 0.0f), sharer, kSharers);
    }
    board_.exchange(act_.hidden, AGENTS * kHidden);
  }
}

__device__ __forceinline__ void Step::head(int first) {
  if constexpr (kForm.final_norm) norm_scales();
  const char* w = section(1, kTeam.head_at);
  hidden_layer<kTeam.share.hidden>(w);
  part_sums<kHeads, kHeadSegments>(kTeam.head.weight.in(w), kHidden > 0 ? act_.hidden : &act_.h[0][0],
                                   kHeadDepth);
  __syncthreads();
  for (int i = thread(); i < AGENTS * kHeads; i += THREADS) {
    const int agent = i / kHeads, row = i % kHeads;
    const int output = rank_ * kHeads + row;
    if (output >= kOutput || first + agent >= args_.count) continue;
    const float sum = row_sum<kHeadSegments>(agent, row, kHeads);
    const RowVectors& rows = kTeam.head.rows;
    store(first + agent, output,
          kHidden > 0 ? plain_value(sum, rows, w, row) : head_value(sum, agent, rows, w, row));
  }
}

}  // namespace policy
}  // namespace exphil

#if ARMED

// grid: TEAM blocks; dynamic shared memory as of policy_step.
extern "C" __global__ void TEAM_SHAPE __launch_bounds__(THREADS, 1)
    policy_step_armed(const exphil::policy::StepArguments args, const exphil::policy::ArmedArguments armed) {
  using namespace exphil::policy;
  Step step(args, reinterpret_cast<char*>(dynamic_shared()), static_cast<int>(blockIdx.x));
  step.start();
  if (step.await(armed)) {
    step.answer(0, true);
  } else {
    step.finish_staging();
  }
}

#else

// grid: teams * TEAM blocks; dynamic shared memory: the staged weights, then kActivations.
extern "C" __global__ void TEAM_SHAPE __launch_bounds__(THREADS, 1)
    policy_step(const exphil::policy::StepArguments args,
                const __grid_constant__ exphil::policy::InlineObs inline_obs) {
  using namespace exphil::policy;
  char* shared = reinterpret_cast<char*>(dynamic_shared());
  const int team = static_cast<int>(blockIdx.x) / TEAM, teams = static_cast<int>(gridDim.x) / TEAM;
  Step step(args, shared, static_cast<int>(blockIdx.x) % TEAM);
  step.start();
  for (int first = team * AGENTS; first < args.count; first += teams * AGENTS) {
    step.group(first, first == team * AGENTS, inline_obs.v);
  }
}

#endif
