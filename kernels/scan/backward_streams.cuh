// What goes from and to memory around the recurrence of the scan's gradient: streams and rows of b and c are
// staged in shared memory before it, and the gradients of x, dt and z are written after it. Included by
// backward_lane.cuh.
#pragma once

#include "kernels/scan/backward.cuh"

namespace exphil {
namespace scan {

// How the threads share a stream: kWidth neighbouring channels to a thread, kAcross threads to a row, kDown
// rows at a time.
constexpr int kWidth = WIDTH;
constexpr int kAcross = kTileChannels / kWidth < kThreads ? kTileChannels / kWidth : kThreads;
constexpr int kDown = kThreads / kAcross;
static_assert(kTileChannels % kWidth == 0, "a row of a stream is whole pieces");

// Rows of a thread that are loaded before the first of them is used, so that their latencies overlap.
constexpr int kAtOnce = 4;

// visit(column, whether its channels exist, element of the thread's first row, elements to its next row).
template <class Visit>
EXPHIL_DEVICE void visit_columns(const Arguments& p, const Place& s, Visit visit) {
  const long long first = s.row(p, s.thread / kAcross) * p.dim + s.tile;
  const long long down = (s.reverse ? -kDown : kDown) * p.dim;
#pragma unroll 1
  for (int column = s.thread % kAcross * kWidth; column < kTileChannels; column += kAcross * kWidth) {
    visit(column, column < s.tile_channels, first + column, down);
  }
}

struct ChannelValues {
  float bias[kWidth], d[kWidth];
};
EXPHIL_DEVICE ChannelValues load_channel_values(const Arguments& p, const Place& s, int column, bool exists) {
  ChannelValues k;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    k.bias[i] = exists ? bias_of(p, s.tile + column + i) : 0.0f;
    k.d[i] = HAS_D && exists ? p.d[s.tile + column + i] : 0.0f;
  }
  return k;
}

// Zeros beyond the sequence and the channels: such a step leaves every state and every sum as it is.
EXPHIL_DEVICE void stage_streams(const BackwardArguments& all, const Place& s, const Shared& shared) {
  const Arguments& p = all.scan;
  visit_columns(p, s, [&](int column, bool exists, long long at, long long down) {
    const ChannelValues k = load_channel_values(p, s, column, exists);
#pragma unroll 1
    for (int first = s.thread / kAcross; first < kSegment; first += kAtOnce * kDown, at += kAtOnce * down) {
      PackedInputs<kWidth> in[kAtOnce] = {};
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        if (exists && first + u * kDown < s.steps) in[u] = load_inputs<kWidth>(all, at + u * down);
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int step = first + u * kDown;
        if (step >= kSegment) break;
        const Inputs<kWidth> now = widen_inputs(in[u]);
        float dt[kWidth] = {}, v[kWidth] = {}, dy[kWidth] = {};
#pragma unroll
        for (int i = 0; exists && step < s.steps && i < kWidth; ++i) {
          dt[i] = activate_dt(p, now.dt.value[i], k.bias[i]);
          v[i] = __fmul_rn(dt[i], now.x.value[i]);
          dy[i] = __fmul_rn(gated_dy(now.dy.value[i], now.z.value[i]), Rule::kReadOutScale);
        }
        const int place = step * kTileChannels + column;
        device::store_floats(shared.dt + place, dt);
        device::store_floats(shared.v + place, v);
        device::store_floats(shared.dy + place, dy);
      }
    }
  });
}

// b or c, kRowPiece elements at a time.
constexpr int kRowPiece = VECTOR_ROWS ? 4 : 1;
constexpr int kRowPieces = kRow / kRowPiece, kRowsAtOnce = 2;
struct RowPieces {
  Packed<kProjectionElement, kRowPiece> value[kRowsAtOnce];
};
// Those of numbers first, first + kThreads, ...
EXPHIL_DEVICE RowPieces load_row_pieces(const Arguments& p, const Place& s, const void* data,
                                        long long step_size, long long group_channels, int number) {
  const long long from = s.row(p, 0) * step_size + s.first / group_channels * kRowUsed;
  const long long next = s.reverse ? -step_size : step_size;
  RowPieces out = {};
#pragma unroll
  for (int u = 0; u < kRowsAtOnce; ++u) {
    const int i = number + u * kThreads, step = i / kRowPieces, k = i % kRowPieces * kRowPiece;
    if (step >= s.steps || k >= kRowUsed) continue;
    out.value[u] = load_packed<kProjectionElement, kRowPiece>(data, from + step * next + k);
  }
  return out;
}
EXPHIL_DEVICE void store_row_pieces(const RowPieces& in, int number, float* to) {
#pragma unroll
  for (int u = 0; u < kRowsAtOnce; ++u) {
    const int i = number + u * kThreads;
    float value[kRowPiece];
    widen(in.value[u], value);
    if (i < kSegment * kRowPieces) device::store_floats(to + i * kRowPiece, value);
  }
}
EXPHIL_DEVICE void stage_projections(const Arguments& p, const Place& s, const Shared& shared) {
  if (B_CONSTANT && C_CONSTANT) return;
#pragma unroll 1
  for (int i = s.thread; i < kSegment * kRowPieces; i += kRowsAtOnce * kThreads) {
    RowPieces b, c;
    if constexpr (!B_CONSTANT) b = load_row_pieces(p, s, p.b, p.b_step, p.b_group_channels, i);
    if constexpr (!C_CONSTANT) c = load_row_pieces(p, s, p.c, p.c_step, p.c_group_channels, i);
    if constexpr (!B_CONSTANT) store_row_pieces(b, i, shared.b);
    if constexpr (!C_CONSTANT) store_row_pieces(c, i, shared.c);
  }
}

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

// The gradients of one step of kWidth channels; adds to the sums for D and for the bias.
EXPHIL_DEVICE void finish_piece(const BackwardArguments& all, const Shared& shared, int place, long long at,
                                const Inputs<kWidth>& in, const ChannelValues& k, float (&d_sums)[kWidth],
                                float (&bias_sums)[kWidth]) {
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
  store_elements(all.dx, at, dx);
  store_elements(all.ddt, at, ddt);
  if (HAS_Z) store_elements(all.dz, at, dz);
}

EXPHIL_DEVICE void finish_streams(const BackwardArguments& all, const Place& s, const Shared& shared) {
  const Arguments& p = all.scan;
  const long long sums_row = (s.batch * all.segments + s.segment) * p.dim + s.tile;
  visit_columns(p, s, [&](int column, bool exists, long long at, long long down) {
    const ChannelValues k = load_channel_values(p, s, column, exists);
    float d_sums[kWidth] = {}, bias_sums[kWidth] = {};
    const int steps = exists ? s.steps : 0;
#pragma unroll 1
    for (int first = s.thread / kAcross; first < steps; first += kAtOnce * kDown, at += kAtOnce * down) {
      PackedInputs<kWidth> in[kAtOnce] = {};
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        if (first + u * kDown < steps) in[u] = load_inputs<kWidth>(all, at + u * down);
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int step = first + u * kDown;
        if (step < steps) {
          finish_piece(all, shared, step * kTileChannels + column, at + u * down, widen_inputs(in[u]), k,
                       d_sums, bias_sums);
        }
      }
    }
    store_channel_sums(s, d_sums, column, shared.kept,
                       all.d_sums == nullptr ? nullptr : all.d_sums + sums_row);
    store_channel_sums(s, bias_sums, column, shared.kept,
                       all.bias_sums == nullptr ? nullptr : all.bias_sums + sums_row);
  });
}

}  // namespace scan
}  // namespace exphil
