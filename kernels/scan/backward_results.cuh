// What scan/backward.cu does behind the recurrence of a tile of channels: the gradients of x, dt and z, and
// the sums over time for D and for the bias. Included by it alone.
#pragma once

#include "kernels/scan/backward_streams.cuh"

namespace exphil {
namespace scan {

// Sums over the threads of a column of a stream in the order of their rows; writes those of the tile.
EXPHIL_DEVICE void store_channel_sums(const Place& s, const float (&sums)[kWidth], int column, float* scratch,
                                      float* to) {
  if (to == nullptr) return;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kWidth; ++i) scratch[i * kThreads + s.thread] = sums[i];
  __syncthreads();
  if (s.thread >= kAcross || column >= s.tile_channels) return;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    float sum = sums[i];
    for (int k = 1; k < kDown; ++k) sum = __fadd_rn(sum, scratch[i * kThreads + s.thread + k * kAcross]);
    to[column + i] = sum;
  }
}

// Where the thread's rows of gradients go; a null one is not asked for. Whole: none is null, and
// is_whole().
template <bool Whole>
struct GradientRows {
  StreamRows dx, ddt, dz;
  bool has_dx, has_ddt;
  EXPHIL_DEVICE GradientRows(const BackwardArguments& all, long long at, long long down)
      : dx(all.dx, Whole || all.dx != nullptr ? at : 0, down),
        ddt(all.ddt, Whole || all.ddt != nullptr ? at : 0, down),
        dz(all.dz, HAS_Z && (Whole || all.dz != nullptr) ? at : 0, down),
        has_dx(Whole || all.dx != nullptr),
        has_ddt(Whole || all.ddt != nullptr) {}
};

// The gradients of one step of kWidth channels; adds to the sums for D and for the bias.
template <bool Whole>
EXPHIL_DEVICE void finish_piece(const BackwardArguments& all, const Shared& shared, int place,
                                const GradientRows<Whole>& to, int u, const Inputs<kWidth>& in,
                                const ChannelValues& k, float (&d_sums)[kWidth], float (&bias_sums)[kWidth]) {
  float active[kWidth], by_dt[kWidth], by_input[kWidth], y[kWidth] = {}, dx[kWidth], ddt[kWidth], dz[kWidth];
  device::load_floats(shared.dt + place, active);
  device::load_floats(shared.v + place, by_dt);
  device::load_floats(shared.dy + place, by_input);
  if (HAS_Z) device::load_floats(shared.y + place, y);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const ElementGradients g = finish_element(
        all.scan, in.x.value[i], in.dt.value[i], in.dy.value[i], in.z.value[i], k.bias[i], k.d[i], active[i],
        __fmul_rn(by_dt[i], Rule::kDtScale), by_input[i], __fmul_rn(y[i], Rule::kReadOutScale));
    dx[i] = g.dx, ddt[i] = g.ddt, dz[i] = g.dz;
    if (HAS_D) d_sums[i] = __fadd_rn(d_sums[i], g.dd);  // without it dy need not be loaded again
    bias_sums[i] = __fadd_rn(bias_sums[i], g.ddt);
  }
  if (to.has_dx) to.dx.store(u, dx);
  if (to.has_ddt) to.ddt.store(u, ddt);
  if (HAS_Z && (Whole || all.dz != nullptr)) to.dz.store(u, dz);
}

template <bool Whole, class Between>
EXPHIL_DEVICE void finish_streams(const BackwardArguments& all, const Place& s, const Shared& shared,
                                  Between between) {
  const Arguments& p = all.scan;
  if (!Whole) between();
  const long long sums_row = (s.batch * all.segments + s.segment) * p.dim + s.tile;
  visit_columns(p, s, [&](int column, bool exists, long long at, long long down) {
    const ChannelValues k = load_channel_values(p, s, column, Whole || exists);
    float d_sums[kWidth] = {}, bias_sums[kWidth] = {};
    const int steps = Whole ? kStaged : exists ? s.steps : 0;
#pragma unroll 1
    for (int first = s.thread / kAcross; first < steps; first += kAtOnce * kDown, at += kAtOnce * down) {
      const InputRows rows(all, at, down);
      const GradientRows<Whole> to(all, at, down);
      PackedInputs<kWidth> in[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        in[u] = Whole || first + u * kDown < steps ? rows.load(u) : PackedInputs<kWidth>{};
      }
      if (Whole && first < kDown) between();
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int step = first + u * kDown;
        if (Whole || step < steps) {
          finish_piece(all, shared, step * kTileChannels + column, to, u, widen_inputs(in[u]), k, d_sums,
                       bias_sums);
        }
      }
    }
    store_channel_sums(s, d_sums, column, shared.kept,
                       all.d_sums == nullptr ? nullptr : all.d_sums + sums_row);
    store_channel_sums(s, bias_sums, column, shared.kept,
                       all.bias_sums == nullptr ? nullptr : all.bias_sums + sums_row);
  });
}
// Calls between() once, where the first loads have been issued; the streams are read after it.
template <class Between>
EXPHIL_DEVICE void finish_streams(const BackwardArguments& all, const Place& s, const Shared& shared,
                                  Between between) {
  const bool wanted = all.dx != nullptr && all.ddt != nullptr && (!HAS_Z || all.dz != nullptr);
  if (wanted && is_whole(s)) {
    finish_streams<true>(all, s, shared, between);
  } else {
    finish_streams<false>(all, s, shared, between);
  }
}

}  // namespace scan
}  // namespace exphil
