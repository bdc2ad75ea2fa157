// The first stage of a scan's gradient where a sequence has several segments (scan/backward.cu): in each
// segment, from a zero state, its last state, its decay (the sum of dt', or the product of Abar), and what
// reaches the state before the segment from the dy within it. Launched by c_src/cuda/scan.
//
// Grid: x = batch * blocks of channels, y = segments. Arguments are read-only but for scratch.
#include "kernels/scan/backward_lane.cuh"

using namespace exphil;
using namespace exphil::scan;

extern "C" __global__ void __launch_bounds__(kThreads)
    selective_scan_backward_local(const __grid_constant__ exphil::scan::BackwardArguments p) {
  extern __shared__ float4 shared_memory[];
  const Shared shared = find_shared(shared_memory);
  const auto load = [&](const Place& s) { return load_lane(p.scan, s); };
  for_each_tile(p, shared, load, [&](const Place& s, const Lane& lane, bool) {
    Number h[kOwn], g[kOwn], decay[kOwn];
    float sum_dt[kChannels] = {};
#pragma unroll
    for (int i = 0; i < kOwn; ++i) h[i] = g[i] = Rule::zero(), decay[i] = Rule::one();
      // Four at a time: steps beyond the sequence are zeros and change nothing.
#pragma unroll 4
    for (int step = 0; step < (s.steps + 3) / 4 * 4; ++step) {
      Step with;
      advance(s, shared, lane, step, &with, h);
      const Channels dt = load_channels(s, shared.dt, step);
#pragma unroll
      for (int k = 0; k < kChannels; ++k) sum_dt[k] = __fadd_rn(sum_dt[k], dt.value[k]);
      const Channels dy = load_channels(s, shared.dy, step);
      const Projection c = load_c(s, shared, step);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        decay[i] = decay[i] * with.abar[i];
        const Number from_y = Rule::add_scaled_conjugate(Rule::zero(), dy.of(i), c_of(lane, c, i));
        g[i] = Rule::add_conjugate(g[i], from_y, decay[i]);
      }
    }
    const long long row = segment_row(p, s);
    store_scratch(p.scan, s, p.checkpoints, row, h);
    store_scratch(p.scan, s, p.adjoints, row, g);
    if constexpr (Rule::kDecayFromSum) {
#pragma unroll
      for (int k = 0; k < kChannels; ++k) {
        if (s.part == 0 && s.has_channel(k)) p.decays[row * p.scan.dim + s.channel(k)] = sum_dt[k];
      }
    } else {
      store_scratch(p.scan, s, p.decays, row, decay);
    }
  });
}
