// How the threads of a block of the scan's gradient share the streams of a tile of channels, and how they are
// staged in shared memory before the recurrence. Included by backward_lane.cuh and backward_results.cuh.
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
constexpr int kAtOnce = kStaged / kDown < 1 ? 1 : AT_ONCE < kStaged / kDown ? AT_ONCE : kStaged / kDown;

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

// Whether every step and every channel of a tile exists. Then its threads share it evenly and need not ask
// for each row.
constexpr bool kEven = kStaged % (kDown * kAtOnce) == 0 && kAcross * kWidth == kTileChannels;
EXPHIL_DEVICE bool is_whole(const Place& s) {
  return kEven && s.steps == kStaged && s.tile_channels == kTileChannels;
}

// The thread's rows of a stream: `first`, and `down` elements to the next.
struct StreamRows {
  const void* first;
  long long down;
  EXPHIL_DEVICE StreamRows(const void* stream, long long at, long long down_)
      : first(static_cast<const Storage*>(stream) + at), down(down_) {}
  EXPHIL_DEVICE long long row(int u) const { return u * down; }
  EXPHIL_DEVICE Packed<ELEMENT, kWidth> load(int u) const {
    return load_packed<ELEMENT, kWidth>(first, row(u));
  }
  EXPHIL_DEVICE void store(int u, const float (&value)[kWidth]) const {
    write_elements(const_cast<void*>(first), row(u), value);
  }
};
struct InputRows {
  StreamRows x, dt, dy, z;
  EXPHIL_DEVICE InputRows(const BackwardArguments& all, long long at, long long down)
      : x(all.scan.x, at, down),
        dt(all.scan.dt, at, down),
        dy(all.dy, at, down),
        z(all.scan.z, HAS_Z ? at : 0, down) {}
  EXPHIL_DEVICE PackedInputs<kWidth> load(int u) const {
    PackedInputs<kWidth> in{};
    in.x = x.load(u), in.dt = dt.load(u), in.dy = dy.load(u);
    if (HAS_Z) in.z = z.load(u);
    return in;
  }
};

EXPHIL_DEVICE void stage_piece(const Arguments& p, const Shared& shared, int place, const Inputs<kWidth>& in,
                               const ChannelValues& k, bool exists) {
  float dt[kWidth] = {}, v[kWidth] = {}, dy[kWidth] = {};
#pragma unroll
  for (int i = 0; exists && i < kWidth; ++i) {
    dt[i] = activate_dt(p, in.dt.value[i], k.bias[i]);
    v[i] = __fmul_rn(dt[i], in.x.value[i]);
    dy[i] = gated_dy(in.dy.value[i], in.z.value[i]);
    if constexpr (Rule::kReadOutScale != 1.0f) dy[i] = __fmul_rn(dy[i], Rule::kReadOutScale);
  }
  device::store_floats(shared.dt + place, dt);
  device::store_floats(shared.v + place, v);
  device::store_floats(shared.dy + place, dy);
}

// Zeros beyond the sequence and the channels: such a step leaves every state and every sum as it is. Whole:
// as is_whole().
template <bool Whole>
EXPHIL_DEVICE void stage_streams(const BackwardArguments& all, const Place& s, const Shared& shared) {
  visit_columns(all.scan, s, [&](int column, bool in_tile, long long at, long long down) {
    const bool exists = Whole || in_tile;
    const ChannelValues k = load_channel_values(all.scan, s, column, exists);
#pragma unroll 1
    for (int first = s.thread / kAcross; first < kStaged; first += kAtOnce * kDown, at += kAtOnce * down) {
      const InputRows rows(all, at, down);
      PackedInputs<kWidth> in[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        in[u] = Whole || (exists && first + u * kDown < s.steps) ? rows.load(u) : PackedInputs<kWidth>{};
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int step = first + u * kDown;
        if (!Whole && step >= kStaged) break;
        stage_piece(all.scan, shared, step * kTileChannels + column, widen_inputs(in[u]), k,
                    Whole || (exists && step < s.steps));
      }
    }
  });
}
EXPHIL_DEVICE void stage_streams(const BackwardArguments& all, const Place& s, const Shared& shared) {
  if (is_whole(s)) {
    stage_streams<true>(all, s, shared);
  } else {
    stage_streams<false>(all, s, shared);
  }
}

}  // namespace scan
}  // namespace exphil
