// The first stage of a scan's gradient where a sequence has several segments (scan/backward.cu): in each
// segment, from a zero state, its last state, its decay (the sum of dt', or the product of Abar), and what
// reaches the state before the segment from the dy within it. Launched by c_src/cuda/scan.
//
// Grid: x = batch * blocks of channels, y = segments. Arguments are read-only but for scratch.
#include "kernels/scan/backward_lane.cuh"

using namespace exphil;
using namespace exphil::scan;

namespace {

// What a lane takes through a segment.
struct Walk {
  Number h[kOwn], g[kOwn], decay[kOwn];
  float sum_dt[kChannels];
};
__device__ __forceinline__ void begin(Walk& walk) {
#pragma unroll
  for (int i = 0; i < kOwn; ++i) walk.h[i] = walk.g[i] = Rule::zero(), walk.decay[i] = Rule::one();
#pragma unroll
  for (int k = 0; k < kChannels; ++k) walk.sum_dt[k] = 0.0f;
}

// The steps in shared memory.
__device__ __forceinline__ void walk_on(const Place& s, const Shared& shared, const Lane& lane, Walk& walk) {
  // Four at a time: steps beyond the sequence are zeros and change nothing.
#pragma unroll 4
  for (int step = 0; step < (s.steps + 3) / 4 * 4; ++step) {
    Step with;
    advance(s, shared, lane, step, &with, walk.h);
    const Channels dt = load_channels(s, shared.dt, step);
#pragma unroll
    for (int k = 0; k < kChannels; ++k) walk.sum_dt[k] = __fadd_rn(walk.sum_dt[k], dt.value[k]);
    const Channels dy = load_channels(s, shared.dy, step);
    const Projection c = load_c(s, shared, step);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      walk.decay[i] = walk.decay[i] * with.abar[i];
      const Number from_y = Rule::add_scaled_conjugate(Rule::zero(), dy.of(i), c_of(lane, c, i));
      walk.g[i] = Rule::add_conjugate(walk.g[i], from_y, walk.decay[i]);
    }
  }
}

__device__ __forceinline__ void store(const BackwardArguments& p, const Place& s, const Walk& walk) {
  const long long row = segment_row(p, s);
  store_scratch(p.scan, s, p.checkpoints, row, walk.h);
  store_scratch(p.scan, s, p.adjoints, row, walk.g);
  if constexpr (Rule::kDecayFromSum) {
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      if (s.part == 0 && s.has_channel(k)) p.decays[row * p.scan.dim + s.channel(k)] = walk.sum_dt[k];
    }
  } else {
    store_scratch(p.scan, s, p.decays, row, walk.decay);
  }
}

}  // namespace

// A few steps of the streams are staged at a time, so that more blocks fit a multiprocessor.
extern "C" __global__ void __launch_bounds__(kThreads, MIN_BLOCKS)
    selective_scan_backward_local(const __grid_constant__ exphil::scan::BackwardArguments p) {
  extern __shared__ float4 shared_memory[];
  const Shared shared = find_shared(shared_memory);
  Place s = find_place(p.scan);
  device::begin_launch_after();
#pragma unroll 1
  for (long long segment = blockIdx.y; segment < p.segments; segment += gridDim.y) {
    enter_segment(s, p.scan, segment);
    __syncthreads();  // the segment before has been read
    stage_projections(p.scan, s, shared);
#pragma unroll 1
    for (int tile = 0; tile < CHANNEL_TILES && tile * kTileChannels < s.channels; ++tile) {
      enter_tile(s, tile);
      const Lane lane = load_lane(p.scan, s);
      Walk walk;
      begin(walk);
      Shared part = shared;
#pragma unroll 1
      for (int first = 0; first < kSegment && enter_staged(s, p.scan, first); first += kStaged) {
        __syncthreads();  // the steps before have been read
        stage_streams(p, s, part);
        __syncthreads();
        walk_on(s, part, lane, walk);
        part.b += kStaged * kRow, part.c += kStaged * kRow;
      }
      store(p, s, walk);
    }
  }
}
