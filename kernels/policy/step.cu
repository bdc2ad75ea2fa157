// One frame of the entire policy for one agent or a few, in one launch: a team of blocks (policy/team.cuh)
// processes AGENTS agents at a time through every layer. Launched by c_src/cuda/policy/team.cpp.
//
// For one agent it is bound by latency: a few exchanges per layer, each after a chain of dependent additions.
// So a block starts loading all of its weights at the beginning (bulk copies into shared memory where STAGED,
// those of a layer's first product directly into registers), dot products are split into segments of 32 over
// all threads (policy/dot.cuh), and between the phases only the recurrent state goes to memory.
//
// It is a walk over the network's lists of phases (policy/network.cuh), unrolled by the compiler. What each
// phase does in a team follows from the lists (policy/team_layout.cuh).
//
// Compiled with NETWORK and TEAM (blocks in a team, a power of two), THREADS, AGENTS (a power of two),
// CLUSTER, STAGED, ARMED. With ARMED it is launched before the observation of its frame is there and waits
// for it (policy/armed.cuh), so that neither the launch nor the first loads of weights are part of the
// frame's time.
#include "kernels/policy/step.cuh"

#if ARMED
#include "kernels/policy/armed.cuh"
#endif

namespace exphil {
namespace policy {

// The segment sums of a layer's first product, of weights that the lane holds or that it reads now; then the
// lane loads those of the next layer.
template <class P>
__device__ __forceinline__ void Step::first_sums(const Run& run) {
  const float* const x = act_.vector<P::kIn>()[0];
  constexpr int kStride = size_of(P::kIn);
  if constexpr (kHoldFirst) {
#pragma unroll
    for (int i = 0; i < kFirstPer; ++i) {
      const int task = thread() + i * THREADS;
      if (task >= P::kTasks) continue;
      const float* values = x + task / P::kRows * kSegment;
      float sum[AGENTS] = {};
#pragma unroll
      for (int j = 0; j < kSegment / 4; ++j) {
        const float4 weight = widen(held_[i][j]);
#pragma unroll
        for (int a = 0; a < AGENTS; ++a) {
          sum[a] = dot4(weight, *reinterpret_cast<const float4*>(values + a * kStride + 4 * j), sum[a]);
        }
      }
#pragma unroll
      for (int a = 0; a < AGENTS; ++a) act_.sums()[a * P::kTasks + task] = sum[a];
    }
    hold_first(run.next);
  } else {
    segment_sums<P::kRows, P::kSegments, false>(
        first_matrix(run.layer), x, kStride,
        [&](int a, int task, float sum) { act_.sums()[a * P::kTasks + task] = sum; });
  }
}

// A product of a vector on the board: this block's rows.
template <List kList, int kAt>
__device__ __forceinline__ void Step::product_of_rows(Run& run) {
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using P = BlockProduct<kIndex>;
  if constexpr (P::kNormed) norm_scales<P>();
  if constexpr (kList == List::layer && kAt == 0) {
    first_sums<P>(run);
    run.w = section<kList>(run.layer);
  } else {
    if constexpr (kAt == 0) run.w = section<kList>(run.layer);
    if constexpr (P::kProductOf.adds) {
      constexpr int kVector = P::vector(0);
      static_assert(P::kOutputs == 1 && kPlan.on_board(kVector), "a product adds to a vector on the board");
      for (int i = thread(); i < AGENTS * P::kRows; i += THREADS) {
        const int row = rank_ * P::kRows + i % P::kRows;
        act_.residual()[i / P::kRows][i % P::kRows] =
            row < size_of(kVector) ? act_.vector<kVector>()[i / P::kRows][row] : 0.0f;
      }
    }
    constexpr PhaseWeights kWeights = weights_of<kList, kAt>();
    segment_sums<P::kRows, P::kSegments, true>(
        kWeights.matrix.in(run.w), act_.vector<P::kIn>()[0], size_of(P::kIn),
        [&](int a, int task, float sum) { act_.sums()[a * P::kTasks + task] = sum; });
  }
  if (run.pushes) {
    __syncthreads();
  } else {
    board_.sync();
  }
  if constexpr (P::kChannelRows > 0) channel_rows<kList, kAt>(run);
  bool pushed = false;
  for_each_number<0, P::kOutputs>([&](auto output) __attribute__((always_inline)) {
    constexpr int kOutput = decltype(output)::value, kVector = P::vector(kOutput);
    if constexpr (kVector == kNetwork.outs) {
      answer_rows<kList, kAt, kOutput>(run);
    } else if constexpr (kPlan.on_board(kVector)) {
      push_rows<kList, kAt, kOutput>(run);
      board_.exchange(act_.vector<kVector>()[0], AGENTS * size_of(kVector));
      pushed = true;
    }
  });
  if constexpr (P::kChannelRows > 0) {
    if (!pushed) __syncthreads();
  }
}

// The rows of outputs that are divided by channels: kept, or handed on to a convolution.
template <List kList, int kAt>
__device__ __forceinline__ void Step::channel_rows(const Run& run) {
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using P = BlockProduct<kIndex>;
  constexpr int kItems = AGENTS * P::kChannelRows;
#pragma unroll
  for (int k = 0; k < divide_up(kItems, THREADS); ++k) {
    const int item = thread() + k * THREADS;
    if (item >= kItems) continue;
    const int agent = item / P::kChannelRows, place = item % P::kChannelRows;
    int row = place;  // among all of the product's
    for_each_number<0, P::kOutputs>([&](auto output) __attribute__((always_inline)) {
      constexpr int kOutput = decltype(output)::value;
      constexpr int kFirst = P::channel_first(kOutput), kSkipped = P::first(kOutput) - kFirst;
      if (kSkipped > 0 && P::channels(kOutput) && place >= kFirst) row = place + kSkipped;
    });
    const float value = row_value<P, kList, kAt>(row_sum<P>(agent, row), agent, run.w, row);
    for_each_number<0, P::kOutputs>([&](auto output) __attribute__((always_inline)) {
      constexpr int kOutput = decltype(output)::value, kVector = P::vector(kOutput);
      constexpr int kFirst = P::channel_first(kOutput);
      if constexpr (P::channels(kOutput)) {
        if (place < kFirst || place >= kFirst + P::rows(kOutput)) return;
        if constexpr (kPlan.convolution_of[kVector] >= 0) {
          convolve_channel<kPlan.convolution_of[kVector]>(run, agent, place - kFirst, k, value);
        } else {
          keep<kVector>(agent, place - kFirst, activated<kIndex, kOutput>(value));
        }
      }
    });
  }
}

// Pushes this block's rows of a vector on the board to all blocks. Several threads add up the same row and
// share the pushes.
template <List kList, int kAt, int kOutput>
__device__ __forceinline__ void Step::push_rows(const Run& run) {
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using P = BlockProduct<kIndex>;
  constexpr int kVector = P::vector(kOutput), kRows = P::rows(kOutput), kFirst = P::first(kOutput);
  constexpr int kSharers = least(TEAM, power_of_two_within(THREADS / (AGENTS * kRows)));
  for (int i = thread(); i < AGENTS * kRows * kSharers; i += THREADS) {
    const int sharer = i / (AGENTS * kRows), agent = i / kRows % AGENTS, row = i % kRows;
    const int place = rank_ * kRows + row;
    if (place >= size_of(kVector)) continue;
    float value = row_value<P, kList, kAt>(row_sum<P>(agent, kFirst + row), agent, run.w, kFirst + row);
    value = activated<kIndex, kOutput>(value);
    if constexpr (P::kProductOf.adds) value = __fadd_rn(value, act_.residual()[agent][row]);
    board_.push(&act_.vector<kVector>()[agent][place], value, sharer, kSharers);
  }
}

// This block's rows of the policy's answer.
template <List kList, int kAt, int kOutput>
__device__ __forceinline__ void Step::answer_rows(const Run& run) {
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using P = BlockProduct<kIndex>;
  constexpr int kRows = P::rows(kOutput), kFirst = P::first(kOutput);
  for (int i = thread(); i < AGENTS * kRows; i += THREADS) {
    const int agent = i / kRows, row = i % kRows;
    const int answer = rank_ * kRows + row;
    if (answer >= kAnswers || run.first + agent >= args_.count) continue;
    const float value = row_value<P, kList, kAt>(row_sum<P>(agent, kFirst + row), agent, run.w, kFirst + row);
    store(run.first + agent, answer, activated<kIndex, kOutput>(value));
  }
}

// A product of a vector that is divided by channels: each block has the segment sums of its channels, and
// every block adds them all up.
template <List kList, int kAt>
__device__ __forceinline__ void Step::product_of_depth(Run& run) {
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using P = BlockProduct<kIndex>;
  static_assert(!P::kNormed && !P::kProductOf.adds, "a norm needs all of a vector");
  constexpr PhaseWeights kWeights = weights_of<kList, kAt>();
  constexpr int kSegments = segments_of(P::kIn), kFirst = P::vector(0);
  segment_sums<P::kRows, P::kSegments, true>(
      kWeights.matrix.in(run.w), act_.vector<P::kIn>()[0], P::kColumns, [&](int a, int task, float sum) {
        const int segment = rank_ * P::kSegments + task / P::kRows;
        if (segment < kSegments) {
          board_.push(&act_.product_parts<kIndex>()[a][segment][task % P::kRows], sum, 0, 1);
        }
      });
  board_.exchange(&act_.product_parts<kIndex>()[0][0][0], AGENTS * kSegments * P::kRows);
  for (int i = thread(); i < AGENTS * P::kRows; i += THREADS) {
    const int agent = i / P::kRows, row = i % P::kRows;
    const float sum = add_segments<kSegments>(&act_.product_parts<kIndex>()[agent][0][row], P::kRows);
    float value = row_value<P, kList, kAt>(sum, agent, run.w, row);
    for_each_number<0, P::kOutputs>([&](auto output) __attribute__((always_inline)) {
      constexpr int kOutput = decltype(output)::value;
      constexpr int kBegin = first_row(kNetwork, P::kProductOf, kOutput);
      if constexpr (P::kProductOf.out[kOutput].activation != Activation::none) {
        if (row >= kBegin && row < kBegin + size_of(P::vector(kOutput)))
          value = activated<kIndex, kOutput>(value);
      }
    });
    act_.vector<kFirst>()[agent][row] = value;
  }
  __syncthreads();
}

// A short product of a vector that every block has: this block's channels, each by one thread.
template <List kList, int kAt>
__device__ __forceinline__ void Step::short_product(Run& run) {
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using P = BlockProduct<kIndex>;
  static_assert(!P::kNormed && !P::kProductOf.adds && P::kOutputs == 1, "a plain product");
  constexpr PhaseWeights kWeights = weights_of<kList, kAt>();
  constexpr int kVector = P::vector(0);
  for (int i = thread(); i < AGENTS * P::kRows; i += THREADS) {  // a warp has whole segments
    const int agent = i / P::kRows, c = i % P::kRows;
    const float sum =
        dot_short<P::kColumns>(reinterpret_cast<const Group*>(kWeights.matrix.in(run.w)) + c, P::kRows,
                               reinterpret_cast<const float4*>(act_.vector<P::kIn>()[agent]));
    keep<kVector>(agent, c, activated<kIndex, 0>(row_value<P, kList, kAt>(sum, agent, run.w, c)));
  }
  kept<kVector>();
}

// The convolution of one of this block's channels, whose input is `value`; shifts its history by one. held:
// where the lane holds the history.
template <int kConvolution>
__device__ __forceinline__ void Step::convolve_channel(const Run& run, int agent, int c, int held,
                                                       float value) {
  using Items = ConvolutionItems<kConvolution>;
  constexpr Convolution kOf = Items::kOf;
  constexpr int kHistory = Items::kHistory, kSize = size_of(kOf.in);
  constexpr int kAt = at_of(Kind::convolution, kConvolution);
  constexpr PhaseWeights kWeights = weights_of<List::layer, kAt>();
  const auto& states = static_cast<HeldLayer<kAt>&>(held_states_).states.values;
  const float* history =
      Items::kHeld ? nullptr : channel_state<kOf.in, 1>(act_.from(agent), run.layer, kOf.state_at, c);
  float taps[kOf.taps];
#pragma unroll
  for (int t = 0; t < kHistory; ++t) {
    taps[t] = Items::kHeld ? states[held][t] : history == nullptr ? 0.0f : history[t * kSize];
  }
  taps[kHistory] = value;
  keep<kOf.out>(agent, c,
                convolve(taps, kWeights.channels.in(run.w) + c, Items::kOwn, kWeights.vector.in(run.w)[c]));
  float* next = channel_state<kOf.in, 1>(act_.to(agent), run.layer, kOf.state_at, c);
  if (next == nullptr) return;
#pragma unroll
  for (int t = 0; t < kHistory; ++t) next[t * kSize] = taps[t + 1];
}

// The state update of this block's channels.
template <List kList, int kAt>
__device__ __forceinline__ void Step::scan(Run& run) {
  static_assert(kList == List::layer, "states are a layer's");
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using Items = ScanItems<kIndex>;
  constexpr Scan kOf = Items::kOf;
  constexpr PhaseWeights kWeights = weights_of<kList, kAt>();
  constexpr int kOwn = Items::kOwn, kLanesOf = Items::kLanesOf, kEach = Items::kEach;
  const auto& states = static_cast<HeldLayer<kAt>&>(held_states_).states.values;
#pragma unroll
  for (int k = 0; k < Items::kPer; ++k) {
    const int item = thread() + k * THREADS;
    if (item >= Items::kItems) continue;
    const int agent = item / (kOwn * kLanesOf), c = item / kLanesOf % kOwn, lane = item % kLanesOf;
    const float* state = Items::kHeld ? nullptr : scan_state<Items>(act_.from(agent), run.layer, c, lane);
    float h[kEach], a[kEach];
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      h[n] = Items::kHeld ? states[k][n] : state == nullptr ? 0.0f : state[n];
      a[n] = kWeights.channels.in(run.w)[(c * kLanesOf + lane) * kEach + n];
    }
    const float* b = act_.vector<kOf.b>()[agent] + lane * kEach;
    const float dt = act_.vector<kOf.dt>()[agent][c], x = act_.vector<kOf.x>()[agent][c];
    float input_dt = dt;
    if constexpr (kOf.input_dt != kNoVector) {
      constexpr int kMeanOf = kPlan.mean_of[kOf.input_dt];
      input_dt = mean_of_segments<values_of(kMeanOf), size_of(kMeanOf)>(act_.mean_parts<kMeanOf>()[agent]);
    }
    const float part = advance(h, a, b, act_.vector<kOf.c>()[agent] + lane * kEach, dt,
                               __fmul_rn(input_dt, x), kOf.carried_decays_input);
    const float y =
        gate(add_lanes<kLanesOf>(part), kWeights.vector.in(run.w)[c], x, act_.vector<kOf.z>()[agent][c]);
    const int channel = rank_ * kOwn + c;
    if constexpr (kPlan.on_board(kOf.out)) {
      if (channel < size_of(kOf.x)) board_.push(&act_.vector<kOf.out>()[agent][channel], y, lane, kLanesOf);
    } else {
      static_assert(!kPlan.has_mean[kOf.out], "the lanes of a channel, not channels, are neighbours");
      if (lane == 0) keep<kOf.out>(agent, c, y);
    }
    float* next = scan_state<Items>(act_.to(agent), run.layer, c, lane);
    if (next == nullptr) continue;
#pragma unroll
    for (int n = 0; n < kEach; ++n) next[n] = h[n];
  }
  if constexpr (kPlan.on_board(kOf.out)) {
    board_.exchange(act_.vector<kOf.out>()[0], AGENTS * size_of(kOf.out));
  } else {
    kept<kOf.out>();
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
