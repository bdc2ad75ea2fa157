// The gradient of the selective scan with a diagonal A, parallel in time. Launched by c_src/cuda/scan;
// scan/backward.cuh says how work is divided.
//
// With g_t = dL/dh_t and dy_t = dL/d<C_t, h_t> (Gu & Dao, "Mamba", 2023, section 3.2, differentiated; complex
// numbers as dL/dRe + i dL/dIm, conj left out where they are real):
//   g_t = dy_t conj(C_t) + conj(Abar_(t+1)) g_(t+1)        dC_t = dy_t conj(h_t)
// and from g_t and h_(t-1) by the chain rule of the state update (formulas::step_gradient) those of A, dt, x
// and B. h is computed again. A sequence of one segment takes selective_scan_backward alone. Longer ones:
//   1. backward_local.cu: in each segment, from a zero state: its last state, its decay, and what reaches the
//      state before the segment from the dy within it.
//   2. backward_carry.cu: the segments one after another: the state before each, g behind each.
//   3. This file: each segment forward, keeping the state at the beginning of each piece, then piece by piece
//      from the last: the piece's states once more, in registers, and the steps back.
// Sums over channels and over time are left as parts, which scan/row_sums.cu adds up in a fixed order. Each
// of these launches begins while the one before it ends (common/launches.cuh).
//
// Grid of 1 and 3: x = batch * blocks of channels, y = segments. Arguments are read-only but for scratch;
// outputs do not overlap inputs.
#include "kernels/scan/backward_results.cuh"
#include "kernels/scan/backward_sums.cuh"

static_assert(STAGED == SEGMENT, "steps go back from the last of the segment");

namespace {

using namespace exphil;
using namespace exphil::scan;

// What a lane adds up over a segment.
struct Sums {
  Number g[kOwn];  // dL/dh behind the step
  Number a[kOwn], b[B_CONSTANT ? kOwn : 1], c[C_CONSTANT ? kOwn : 1];
};

// sums[kind] += w s, of state i of the lane, or its sum over the segment where the projection is constant.
template <int Kind>
__device__ __forceinline__ void add_projection(StepSums& sums, int i, Number value) {
  float* to = sums.over_channels + Kind * kLaneRow + i % kPerLane * kFloats;
  Rule::store(Rule::load(to) + value, to);
}

// What a step reads of shared memory. It is loaded a step ahead, before the sums of the step that follows it
// in time are added up.
struct StepInputs {
  Channels dt, v, dy;
  Projection b, c;
};
__device__ __forceinline__ StepInputs load_step(const Place& s, const Shared& shared, int step) {
  return {load_channels(s, shared.dt, step), load_channels(s, shared.v, step),
          load_channels(s, shared.dy, step), load_b(s, shared, step), load_c(s, shared, step)};
}

__device__ __forceinline__ void step_back(const Lane& lane, const StepInputs& in,
                                          const Number (&before)[kOwn], const Number (&after)[kOwn],
                                          const Step& with, Sums& total, StepSums& sums) {
  clear(sums);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    float* states = sums.over_states + i / kPerLane;
    float* rows = sums.over_channels + i % kPerLane * kFloats;
    const Number c_now = c_of(lane, in.c, i), b_now = b_of(lane, in.b, i);
    total.g[i] = Rule::add_scaled_conjugate(total.g[i], in.dy.of(i), c_now);
    const auto back = formulas::step_gradient<kRule, device::Math>(
        total.g[i], before[i], Rule::exponent(lane.a[i], in.dt.of(i)), with.abar[i],
        Rule::kHasGain ? with.gain[Rule::kHasGain ? i : 0] : Rule::one(), in.v.of(i), b_now);
    total.g[i] = back.h;
    total.a[i] = Rule::add_scaled(total.a[i], back.w, in.dt.of(i));
    states[0] = Rule::add_real_product(Real{states[0]}, back.w, lane.a[i]).v;
    states[kChannels] = Rule::add_real_product(Real{states[kChannels]}, back.input, b_now).v;
    if constexpr (HAS_Z) {
      constexpr int kY = HAS_Z ? 2 * kChannels : 0;
      states[kY] = Rule::add_read_out(Real{states[kY]}, c_now, after[i]).v;
    }
    if constexpr (B_CONSTANT) {
      Number& sum = total.b[B_CONSTANT ? i : 0];
      sum = Rule::add_scaled(sum, back.input, in.v.of(i));
    } else {
      Rule::store(Rule::add_scaled(Rule::load(rows), back.input, in.v.of(i)), rows);
    }
    if constexpr (C_CONSTANT) {
      Number& sum = total.c[C_CONSTANT ? i : 0];
      sum = Rule::add_scaled_conjugate(sum, in.dy.of(i), after[i]);
    } else {
      Rule::store(Rule::add_scaled_conjugate(Rule::load(rows + kLaneRow), in.dy.of(i), after[i]),
                  rows + kLaneRow);
    }
  }
}

// h before the segment, or before a piece of it where every state is given.
__device__ __forceinline__ void load_before(const BackwardArguments& all, const Place& s, int step,
                                            Number (&h)[kOwn]) {
  const Arguments& p = all.scan;
  if (HAS_STATES && s.start + step > 0) {
    load_states(p, s, all.given_states, s.row(p, step - 1), h);
  } else if (!HAS_STATES && all.segments > 1) {
    load_scratch(p, s, all.checkpoints, segment_row(all, s), h);
  } else {
    load_states(p, s, p.initial_state, s.batch, h);
  }
}

__device__ __forceinline__ float* kept_states(const Place& s, const Shared& shared, int piece) {
  return shared.kept + s.warp * kLayout.of_warp() + kLayout.states_at(piece);
}

// Leaves h as it is before the last piece.
__device__ __forceinline__ void keep_states(const Place& s, const Shared& shared, const Lane& lane,
                                            int pieces, Number (&h)[kOwn]) {
#pragma unroll 1
  for (int piece = 0; piece + 1 < pieces; ++piece) {
    float flat[kOwn * kFloats];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) Rule::store(h[i], flat + i * kFloats);
    store_of_lane(kept_states(s, shared, piece), flat);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      Step unused;
      advance(s, shared, lane, piece * kSteps + k, &unused, h);
    }
  }
}
__device__ __forceinline__ void load_kept(const Place& s, const Shared& shared, int piece,
                                          Number (&h)[kOwn]) {
  float flat[kOwn * kFloats];
  load_of_lane(kept_states(s, shared, piece), flat);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) h[i] = Rule::load(flat + i * kFloats);
}

// One piece: forward from h, then back.
__device__ __forceinline__ void piece_back(const Place& s, const Shared& shared, const Lane& lane, int piece,
                                           const Number (&h)[kOwn], Sums& total) {
  float* sums = shared.kept + s.warp * kLayout.of_warp() + kLayout.sums_at(piece);
  Number state[kSteps + 1][kOwn];
  Step with[kSteps];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) state[0][i] = h[i];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) state[k + 1][i] = state[k][i];
    advance(s, shared, lane, piece * kSteps + k, &with[k], state[k + 1]);
  }
  StepInputs in = load_step(s, shared, piece * kSteps + kSteps - 1);
#pragma unroll
  for (int k = kSteps - 1; k >= 0; --k) {
    const int step = piece * kSteps + k;
    StepSums step_sums;
    step_back(lane, in, state[k], state[k + 1], with[k], total, step_sums);
    reduce_step(s, shared, step, step_sums, sums + k * 2 * kRow, [&] {
      if (k > 0) in = load_step(s, shared, step - 1);
    });
  }
}

// What a lane reads before a tile of channels.
struct Begin {
  Lane lane;
  Number g[kOwn], h[kOwn];  // dL/dh behind the segment, h before it
};
__device__ __forceinline__ Begin load_begin(const BackwardArguments& all, const Place& s) {
  Begin begin;
  begin.lane = load_lane(all.scan, s);
  if (all.segments > 1) {
    load_scratch(all.scan, s, all.adjoints, segment_row(all, s), begin.g);
  } else {
    load_states(all.scan, s, all.d_final_state, s.batch, begin.g);
  }
  if (!HAS_STATES) load_before(all, s, 0, begin.h);
  return begin;
}

// Brings what a tile of channels reads first to the L2 cache, where every step and channel of it exists.
__device__ __forceinline__ void prefetch_line(const void* at) {
#if __CUDA_ARCH__ >= 750
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#endif
}
__device__ __forceinline__ void prefetch_tile(const BackwardArguments& all, const Place& s) {
  if (!is_whole(s)) return;
  constexpr int kBytes = 128, kLine = kBytes / static_cast<int>(sizeof(Storage));  // elements
  constexpr int kLines = (kTileChannels + kLine - 1) / kLine;
  const void* streams[] = {all.scan.x, all.scan.dt, all.dy};
#pragma unroll 1
  for (int i = s.thread; i < kSegment * kLines; i += kThreads) {
    const long long at = s.row(all.scan, i / kLines) * all.scan.dim + s.tile + i % kLines * kLine;
#pragma unroll
    for (int k = 0; k < 3; ++k) prefetch_line(static_cast<const Storage*>(streams[k]) + at);
    if (HAS_Z) prefetch_line(static_cast<const Storage*>(all.scan.z) + at);
  }
  if (all.segments <= 1) return;
  constexpr int kFloatsOfLine = kBytes / 4, kStates = kTileChannels * STATE * kFloats;
  const long long first = (segment_row(all, s) * all.scan.dim + s.tile) * STATE * kFloats;
#pragma unroll 1
  for (int i = s.thread * kFloatsOfLine; i < kStates; i += kThreads * kFloatsOfLine) {
    if (!HAS_STATES) prefetch_line(all.checkpoints + first + i);
    prefetch_line(all.adjoints + first + i);
  }
}

__device__ __forceinline__ void tile_back(const BackwardArguments& all, const Place& s, const Shared& shared,
                                          Begin& begin, bool first_tile) {
  const Arguments& p = all.scan;
  const Lane& lane = begin.lane;
  Number(&h)[kOwn] = begin.h;
  Sums total;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    total.g[i] = begin.g[i], total.a[i] = Rule::zero();
    if constexpr (B_CONSTANT) total.b[B_CONSTANT ? i : 0] = Rule::zero();
    if constexpr (C_CONSTANT) total.c[C_CONSTANT ? i : 0] = Rule::zero();
  }
  const int pieces = (s.steps + kSteps - 1) / kSteps;
  if (!HAS_STATES) keep_states(s, shared, lane, pieces, h);
#pragma unroll 1
  for (int piece = pieces - 1; piece >= 0; --piece) {
    if (HAS_STATES) {
      load_before(all, s, piece * kSteps, h);
    } else if (piece + 1 < pieces) {
      load_kept(s, shared, piece, h);
    }
    piece_back(s, shared, lane, piece, h, total);
    if (kLayout.summed_pieces() < kLayout.pieces() && piece > 0 &&
        kLayout.summed(piece) == kLayout.summed_pieces() - 1) {
      store_projection_sums(all, s, shared, piece, first_tile);
      __syncthreads();  // the sums have been read
    }
  }
  const long long row = segment_row(all, s);
  store_scratch(p, s, all.a_sums, row, total.a);
#if B_CONSTANT
  store_scratch(p, s, all.b_sums, row, total.b);
#endif
#if C_CONSTANT
  store_scratch(p, s, all.c_sums, row, total.c);
#endif
  if (all.segments <= 1 && all.d_initial_state != nullptr) {
    store_states(p, s, all.d_initial_state, s.batch, total.g);
  }
}

}  // namespace

// What a tile reads first is loaded before its streams, so that the latencies overlap. Where a block has one
// tile it is loaded after them: they need not wait for the stage before.
constexpr bool kBeginFirst = CHANNEL_TILES > 1;

extern "C" __global__ void __launch_bounds__(kThreads, MIN_BLOCKS)
    selective_scan_backward(const __grid_constant__ exphil::scan::BackwardArguments p) {
  extern __shared__ float4 shared_memory[];
  const Shared shared = find_shared(shared_memory);
  Place s = find_place(p.scan);
  device::begin_launch_after();
#pragma unroll 1
  for (long long segment = blockIdx.y; segment < p.segments; segment += gridDim.y) {
    enter_segment(s, p.scan, segment);
    // The rows of b and c are loaded with the first tile or, where that would not save a wait, before it.
    const bool rows_first = !kBeginFirst || !has_whole_rows(s);
    __syncthreads();  // the segment before has been read
    if (rows_first) stage_projections(p.scan, s, shared);
#pragma unroll 1
    for (int tile = 0; tile < CHANNEL_TILES && tile * kTileChannels < s.channels; ++tile) {
      enter_tile(s, tile);
      __syncthreads();  // the tile before has been read
      Projections rows;
      if (!rows_first && tile == 0) rows = load_projections(p.scan, s);
      Begin begin;
      if (kBeginFirst) device::await_launch_before(), begin = load_begin(p, s);
      stage_streams(p, s, shared);
      if (!rows_first && tile == 0) store_projections(s, shared, rows);
      if (!kBeginFirst) device::await_launch_before(), begin = load_begin(p, s);
      __syncthreads();
      if (tile + 1 < CHANNEL_TILES && (tile + 1) * kTileChannels < s.channels) {
        Place next = s;
        enter_tile(next, tile + 1);
        prefetch_tile(p, next);
      }
      tile_back(p, s, shared, begin, tile == 0);
      finish_streams(p, s, shared, [&] {
        store_projection_sums(p, s, shared, 0, tile == 0);
        __syncthreads();
      });
    }
  }
}
