// How scan/backward.cu divides its work, and what goes from and to memory around its recurrence: streams and
// rows of b and c staged in shared memory before it, the gradients of x, dt and z after it. All sizes are -D
// defines.
//
// A block takes CHANNEL_TILES * kTileChannels channels of one segment of SEGMENT steps, a tile of channels at
// a time. The LANES lanes of a column hold PER_LANE states each of its CHANNELS neighbouring channels. A
// segment is cut into pieces of STEPS steps, whose states a lane holds in registers.
#pragma once

#include "kernels/scan/backward_arguments.cuh"
#include "kernels/scan/backward_elements.cuh"
#include "kernels/scan/backward_numbers.cuh"
#include "kernels/scan/reduce.cuh"

namespace exphil {
namespace scan {

constexpr auto kRule = static_cast<Discretization>(DISCRETIZATION);
#if COMPLEX
using Number = ComplexReal;
#else
using Number = Real;
#endif
using Rule = BackwardRule<kRule, Number>;
constexpr int kProjectionElement = COMPLEX ? device::kF32 : ELEMENT;
using ProjectionStorage = device::StorageOf<kProjectionElement>::Type;

constexpr int kFloats = Rule::kFloats;
constexpr int kLanes = LANES, kPerLane = PER_LANE, kChannels = CHANNELS;
constexpr int kOwn = kChannels * kPerLane;  // states of a lane
constexpr int kLaneRow = kPerLane * kFloats;
constexpr int kRow = kLanes * kLaneRow, kRowUsed = STATE * kFloats;
constexpr int kColumns = 32 / kLanes, kWarps = WARPS, kThreads = 32 * kWarps;
constexpr int kTileChannels = kWarps * kColumns * kChannels;
constexpr int kBlockChannels = CHANNEL_TILES * kTileChannels;
constexpr int kSegment = SEGMENT, kSteps = STEPS;
constexpr int kPieces = (kSegment + kSteps - 1) / kSteps;
constexpr BackwardLayout kLayout{kSegment, kSteps, kTileChannels, kRow, kOwn* kFloats, kWarps, HAS_Z};
static_assert(kSegment % kSteps == 0, "a piece of a segment is whole");

struct Place : BlockPlace<long long> {
  int thread, warp, part;  // part: of a column, the lane's number in it
  int column;              // of the tile
  bool reverse;
  long long segment, start;  // start: its first step in scan order
  int steps;                 // of the segment that exist
  long long tile;            // first channel of the tile
  int tile_channels;         // of it that exist

  EXPHIL_DEVICE int local() const { return column * kChannels; }  // the first channel of the column
  EXPHIL_DEVICE bool has_channel(int c) const { return local() + c < tile_channels; }
  EXPHIL_DEVICE long long channel(int c) const { return tile + local() + c; }
  // The row of {batch, seq} of a step of the segment.
  EXPHIL_DEVICE long long row(const Arguments& p, long long step) const {
    return batch * p.seq + (reverse ? p.seq - 1 - start - step : start + step);
  }
};

EXPHIL_DEVICE Place find_place(const Arguments& p) {
  Place s;
  static_cast<BlockPlace<long long>&>(s) =
      find_block<ThreadLayout<long long, kColumns, kChannels, false>>(p, kBlockChannels);
  s.warp = threadIdx.y, s.thread = threadIdx.x + 32 * threadIdx.y;
  s.part = threadIdx.x % kLanes, s.column = s.warp * kColumns + threadIdx.x / kLanes;
  s.reverse = p.reverse != 0;
  return s;
}
EXPHIL_DEVICE void enter_segment(Place& s, const Arguments& p, long long segment) {
  s.segment = segment, s.start = segment * kSegment;
  s.steps = static_cast<int>(min(static_cast<long long>(kSegment), p.seq - s.start));
}
EXPHIL_DEVICE void enter_tile(Place& s, int tile) {
  s.tile = s.first + tile * kTileChannels;
  s.tile_channels = min(kTileChannels, s.channels - tile * kTileChannels);
}

// A block's shared memory. Streams are {SEGMENT, kTileChannels}, rows {SEGMENT, kRow}.
struct Shared {
  float *dt, *v, *dy, *y;  // dt', dt' x, dL/d<C, h>; after a step v and dy hold the sums for dt and for dt' x
  float *b, *c;
  float* kept;  // the state at the beginning of each piece but the last: {pieces - 1, kOwn floats, kThreads}
  float* sums;  // for b and c, of one piece: two of {kWarps, STEPS, 2, kRow}
};
EXPHIL_DEVICE Shared find_shared(float4* memory) {
  float* at = reinterpret_cast<float*>(memory);
  const int stream = kLayout.stream();
  return {at,
          at + stream,
          at + 2 * stream,
          at + 3 * stream,
          at + kLayout.rows(),
          at + kLayout.rows() + kSegment * kRow,
          at + kLayout.kept(),
          at + kLayout.sums()};
}

// How the threads share a stream: kWidth neighbouring channels to a thread, kAcross threads to a row, kDown
// rows at a time.
constexpr int kWidth = WIDTH;
constexpr int kAcross = kTileChannels / kWidth < kThreads ? kTileChannels / kWidth : kThreads;
constexpr int kDown = kThreads / kAcross;
static_assert(kTileChannels % kWidth == 0, "a row of a stream is whole pieces");

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
#pragma unroll 4
    for (int step = s.thread / kAcross; step < kSegment; step += kDown, at += down) {
      float dt[kWidth] = {}, v[kWidth] = {}, dy[kWidth] = {};
      if (exists && step < s.steps) {
        const auto in = load_inputs<kWidth>(all, at);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          dt[i] = activate_dt(p, in.dt.value[i], k.bias[i]);
          v[i] = __fmul_rn(dt[i], in.x.value[i]);
          dy[i] = __fmul_rn(gated_dy(in.dy.value[i], in.z.value[i]), Rule::kReadOutScale);
        }
      }
      const int place = step * kTileChannels + column;
      device::store_floats(shared.dt + place, dt);
      device::store_floats(shared.v + place, v);
      device::store_floats(shared.dy + place, dy);
    }
  });
}

// b or c, kRowPiece elements at a time.
constexpr int kRowPiece = VECTOR_ROWS ? 4 : 1;
EXPHIL_DEVICE void stage_rows(const Arguments& p, const Place& s, const void* data, long long step_size,
                              long long group_channels, float* to) {
  constexpr int kPieces = kRow / kRowPiece;
  const auto* from = static_cast<const ProjectionStorage*>(data) + s.row(p, 0) * step_size +
                     s.first / group_channels * kRowUsed;
  const long long next = s.reverse ? -step_size : step_size;
#pragma unroll 4
  for (int i = s.thread; i < kSegment * kPieces; i += kThreads) {
    const int step = i / kPieces, k = i % kPieces * kRowPiece;
    float value[kRowPiece] = {};
    if (step < s.steps && k < kRowUsed) {
      const ProjectionStorage* piece = from + step * next + k;
      if constexpr (kRowPiece == 4) {
        const float4 v = device::widen_four<kProjectionElement>(piece);
        value[0] = v.x, value[1] = v.y, value[2] = v.z, value[3] = v.w;
      } else {
        value[0] = device::widen<kProjectionElement>(piece[0]);
      }
    }
    device::store_floats(to + i * kRowPiece, value);
  }
}
EXPHIL_DEVICE void stage_projections(const Arguments& p, const Place& s, const Shared& shared) {
#if !B_CONSTANT
  stage_rows(p, s, p.b, p.b_step, p.b_group_channels, shared.b);
#endif
#if !C_CONSTANT
  stage_rows(p, s, p.c, p.c_step, p.c_group_channels, shared.c);
#endif
}

// visit(i, float index within {dim, state} rows of the lane's state i, whether it exists): the float index
// counts from row `row` of the first channel of the tile.
template <class Visit>
EXPHIL_DEVICE void visit_states(const Place& s, Visit visit) {
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int n = s.part * kPerLane + i;
      visit(c * kPerLane + i, (s.channel(c) * STATE + n) * kFloats, s.has_channel(c) && n < STATE);
    }
  }
}
// {..., dim, state} from row `row` of what is before dim; zeros where there is nothing.
EXPHIL_DEVICE void load_states(const Arguments& p, const Place& s, const float* data, long long row,
                               Number (&to)[kOwn]) {
  const float* from = data + row * p.dim * kRowUsed;
  visit_states(s, [&](int i, long long at, bool exists) {
    to[i] = data != nullptr && exists ? Rule::load(from + at) : Rule::zero();
  });
}
EXPHIL_DEVICE void store_states(const Arguments& p, const Place& s, float* data, long long row,
                                const Number (&from)[kOwn]) {
  float* to = data + row * p.dim * kRowUsed;
  visit_states(s, [&](int i, long long at, bool exists) {
    if (exists) Rule::store(from[i], to + at);
  });
}
template <int E>
EXPHIL_DEVICE void load_constant(const Place& s, const void* data, Number (&to)[kOwn]) {
  const auto* from = static_cast<const typename device::StorageOf<E>::Type*>(data);
  visit_states(s, [&](int i, long long at, bool exists) {
    float flat[kFloats];
#pragma unroll
    for (int f = 0; f < kFloats; ++f) flat[f] = exists ? device::widen<E>(from[at + f]) : 0.0f;
    to[i] = Rule::load(flat);
  });
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
                                const ChannelValues& k, float (&d_sums)[kWidth], float (&bias_sums)[kWidth]) {
  const auto in = load_inputs<kWidth>(all, at);
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
    d_sums[i] = __fadd_rn(d_sums[i], g.dd), bias_sums[i] = __fadd_rn(bias_sums[i], g.ddt);
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
#pragma unroll 2
    for (int step = s.thread / kAcross; step < steps; step += kDown, at += down) {
      finish_piece(all, shared, step * kTileChannels + column, at, k, d_sums, bias_sums);
    }
    store_channel_sums(s, d_sums, column, shared.kept,
                       all.d_sums == nullptr ? nullptr : all.d_sums + sums_row);
    store_channel_sums(s, bias_sums, column, shared.kept,
                       all.bias_sums == nullptr ? nullptr : all.bias_sums + sums_row);
  });
}

}  // namespace scan
}  // namespace exphil
