// One frame of the entire policy for one agent or a few, in one launch: a team of blocks (policy/team.cuh)
// processes AGENTS agents at a time through every layer. Launched by c_src/cuda/policy/team.cpp.
//
// For one agent it is bound by latency: of a launch some 3 us until the first of its weights can be used, and
// then a few exchanges per layer, each after a chain of dependent additions. So a block starts loading all of
// its weights at the beginning (bulk copies into shared memory where STAGED, those of a layer's first product
// directly into registers), dot products are split into segments of 32 over all threads (policy/dot.cuh), and
// between the phases only the recurrent state goes to memory.
//
// It is a walk over the network's lists of phases (policy/network.cuh), unrolled by the compiler. What each
// phase does in a team follows from the lists (policy/team_layout.cuh).
//
// Compiled with NETWORK and TEAM (blocks in a team, a power of two), THREADS, AGENTS (a power of two),
// CLUSTER, COUNTS, STAGED, ARMED. With ARMED it is launched before the observation of its frame is there and
// waits for it (policy/armed.cuh), so that neither the launch nor the first loads of weights are part of the
// frame's time.
#include "kernels/policy/step_heads.cuh"
#include "kernels/policy/step_products.cuh"
#include "kernels/policy/step_rotations.cuh"
#include "kernels/policy/step_states.cuh"
#include "kernels/policy/step_values.cuh"
#include "kernels/policy/step_weights.cuh"

#if ARMED
#include "kernels/policy/armed.cuh"
#endif

namespace exphil {
namespace policy {

// The convolution of one of this block's channels, whose input is `value`; shifts its history by one. held:
// where the thread holds the history.
template <int kConvolution>
__device__ __forceinline__ void Step::convolve_channel(const Run& run, int agent, int c, int held,
                                                       float value) {
  using Items = ConvolutionItems<kConvolution>;
  constexpr Convolution kOf = Items::kOf;
  constexpr int kHistory = Items::kHistory, kSize = size_of(kOf.in);
  constexpr int kAt = at_of(Kind::convolution, kConvolution);
  constexpr PhaseWeights kWeights = weights_of<List::layer, kAt>();
  const auto& states = static_cast<HeldLayer<kAt>&>(held_states_).states.values;
  const float* const from = Items::kHeld ? nullptr : from_place(agent);
  const int at = state_at<kOf.in, 1>(run.layer, kOf.state_at, c);
  float taps[kOf.taps];
#pragma unroll
  for (int t = 0; t < kHistory; ++t) {
    taps[t] = Items::kHeld ? states[held][t] : has_state<kOf.in>(from, c) ? from[at + t * kSize] : 0.0f;
  }
  taps[kHistory] = value;
  keep<kOf.out>(agent, c,
                convolve(taps, kWeights.channels.in(run.w) + c, Items::kOwn, kWeights.vector.in(run.w)[c]));
  float* const to = to_place(agent);
  if (!has_state<kOf.in>(to, c)) return;
#pragma unroll
  for (int t = 0; t < kHistory; ++t) to[at + t * kSize] = taps[t + 1];
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

// The dt that scales a scan's inputs: the channel's, or a mean.
template <int kScan>
__device__ __forceinline__ float Step::input_dt(int agent, float dt) const {
  constexpr int kMean = kNetwork.scans[kScan].input_dt;
  if constexpr (kMean != kNoVector) {
    constexpr int kOf = kPlan.mean_of[kMean];
    return mean_of_segments<values_of(kOf), size_of(kOf)>(act_.mean_parts<kOf>()[agent]);
  }
  return dt;
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
    const float* const from = Items::kHeld ? nullptr : from_place(agent);
    const int at = scan_at<Items>(run.layer, c, lane);
    float h[kEach], a[kEach];
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      h[n] = Items::kHeld ? states[k][n] : has_state<kOf.x>(from, c) ? from[at + n] : 0.0f;
      a[n] = kWeights.channels.in(run.w)[(c * kLanesOf + lane) * kEach + n];
    }
    const float* b = act_.vector<kOf.b>()[agent] + lane * kEach;
    const float dt = act_.vector<kOf.dt>()[agent][c], x = act_.vector<kOf.x>()[agent][c];
    const float part = advance(h, a, b, act_.vector<kOf.c>()[agent] + lane * kEach, dt,
                               __fmul_rn(input_dt<kIndex>(agent, dt), x), kOf.carried_decays_input);
    const float y =
        gate(add_lanes<kLanesOf>(part), kWeights.vector.in(run.w)[c], x, act_.vector<kOf.z>()[agent][c]);
    static_assert(!kPlan.has_mean[kOf.out], "the lanes of a channel, not channels, are neighbours");
    keep<kOf.out>(agent, c, y, lane, kLanesOf);
    float* const to = to_place(agent);
    if (!has_state<kOf.x>(to, c)) continue;
#pragma unroll
    for (int n = 0; n < kEach; ++n) to[at + n] = h[n];
  }
  kept<kOf.out>();
}

// The step of this block's units of a cell. While the blocks exchange them, each computes what a later
// layer's cells need of their states before the frame.
template <List kList, int kAt>
__device__ __forceinline__ void Step::cell(Run& run) {
  static_assert(kList == List::layer, "states are a layer's");
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using Items = CellItems<kIndex>;
  constexpr GatedCell kOf = Items::kOf;
  constexpr int kGates = formulas::gates_of(kOf.cell), kOut = kOf.out, kVector = kOf.x[0];
  const auto& states = static_cast<HeldLayer<kAt>&>(held_states_).states.values;
#pragma unroll
  for (int k = 0; k < Items::kPer; ++k) {
    const int item = thread() + k * THREADS;
    if (item >= Items::kItems) continue;
    const int agent = item / Items::kOwn % AGENTS, c = item % Items::kOwn;
    const int sharer = item / (Items::kOwn * AGENTS), unit = rank_ * Items::kOwn + c;
    if (!has_channel<kVector>(unit)) continue;
    const float* const from = Items::kHeld ? nullptr : from_place(agent);
    const int at = state_at<kVector, 1>(run.layer, kOf.state_at, c);
    Real x[kGates], h[kGates], values[Items::kStates];
    for_each_number<0, kGates>([&](auto gate) __attribute__((always_inline)) {
      constexpr int kGate = decltype(gate)::value, kX = Items::kOf.x[kGate], kH = Items::kOf.h[kGate];
      x[kGate] = {act_.vector<kX>()[agent][c]};
      h[kGate] = {0.0f};
      if constexpr (kH != kNoVector) h[kGate] = {act_.recalled<kH>(run.layer)[agent][c]};
    });
#pragma unroll
    for (int s = 0; s < Items::kStates; ++s) {
      values[s] = {Items::kHeld ? states[k][s] : from != nullptr ? from[at + s * Items::kUnits] : 0.0f};
    }
    float out = formulas::advance_cell<kOf.cell, Math>(x, h, values).v;
    if constexpr (kOf.adds) out = __fadd_rn(act_.vector<kOut>()[agent][unit], out);
    board_.push(&act_.next<kOut>()[agent][unit], out, sharer, Items::kSharers);
    float* const to = to_place(agent);
    if (to == nullptr || sharer != 0) continue;
#pragma unroll
    for (int s = 0; s < Items::kStates; ++s) to[at + s * Items::kUnits] = values[s].v;
  }
  // The rest of hidden, which the first layer may have read.
  constexpr int kRest = size_of(kOut) - Items::kUnits;
  for (int i = thread(); rank_ == 0 && i < AGENTS * kRest; i += THREADS) {
    const int agent = i / most(kRest, 1), at = Items::kUnits + i % most(kRest, 1);
    board_.push(&act_.next<kOut>()[agent][at], kOf.adds ? act_.vector<kOut>()[agent][at] : 0.0f, 0, 1);
  }
  const unsigned pushed = board_.pushed(AGENTS * size_of(kOut));
  if constexpr (kAt == kLastCell && kEarlyLayers < kNetwork.layers) {
    early_products(run.layer + kEarlyLayers, run.layer + kEarlyLayers + 1);
  }
  board_.receive(pushed);
  act_.turn();
  board_.copy(act_.vector<kOut>()[0], AGENTS * size_of(kOut));
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
    step.answer(0, true, true);
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
    step.group(first, first == team * AGENTS, first + teams * AGENTS >= args.count, inline_obs.v);
  }
}

#endif
