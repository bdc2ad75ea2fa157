// The parts that both scan kernels of selective_scan.cu are made of: where a thread stands, staging of b and
// c in shared memory, activation of dt, the sum over a channel's lanes, and the way out. All sizes are -D
// defines.
//
// A warp owns 32 / LANES neighbouring channels and one chunk of STEPS time steps at a time. The LANES lanes
// of a channel hold PER_LANE states each. Elements of x, dt, z and y are dealt out by time within a channel:
// lane j has the steps j, j + LANES, ...; b and c are shared by every channel of the block.
//
// <C, h> is summed in one order whatever LANES is: pairs of neighbouring states, then a binary tree. LANES
// may therefore be chosen by how much work there is without changing a bit of the result.
#pragma once

#include "selective_scan_arguments.cuh"
#include "selective_scan_reduce.cuh"
#include "selective_scan_rules.cuh"

namespace exphil {
namespace scan {

constexpr auto kRule = static_cast<Discretization>(DISCRETIZATION);
#if COMPLEX
using Rule = ComplexRule<kRule>;
#else
using Rule = RealRule<kRule>;
#endif
using State = Rule::State;
using Storage = device::StorageOf<ELEMENT>::Type;
// b and c: of x's type, or pairs of f32.
constexpr int kProjectionElement = COMPLEX ? device::kF32 : ELEMENT;
using ProjectionStorage = device::StorageOf<kProjectionElement>::Type;

constexpr int kFloats = Rule::kFloats;
constexpr int kLanes = LANES, kPerLane = PER_LANE, kSteps = STEPS;
constexpr int kChannels = 32 / kLanes;
constexpr int kStateFloats = kPerLane * kFloats;
constexpr int kRow = kLanes * kStateFloats;
constexpr int kRowUsed = STATE * kFloats;
constexpr int kGroup = kLanes < kSteps ? kLanes : kSteps;  // steps whose sums are reduced together
constexpr int kElements = kSteps / kGroup;                 // of x, dt, z, y for each lane and chunk
constexpr bool kKeepInput = KEEP_INPUT;

// Where a thread stands. `offset` is the element of x at scan position 0 of its channel, `stride` the step in
// it.
struct Place {
  int lane, channel_in_warp, part, group, time;
  bool live;  // the channel exists
  long long batch, channel;
  long long first_channel;  // of the block
  int direction;            // 0: y's, 1: the other
  bool reverse;
  long long offset, stride;
};

EXPHIL_DEVICE Place find_place(const Arguments& p) {
  Place s;
  s.lane = threadIdx.x, s.group = threadIdx.y, s.time = threadIdx.z;
  s.channel_in_warp = s.lane / kLanes, s.part = s.lane % kLanes;
  const int in_batch = blockIdx.x % p.blocks_per_batch;
  s.batch = blockIdx.x / p.blocks_per_batch;
  const long long span = in_batch / p.blocks_per_span;
  const int block = in_batch % p.blocks_per_span;
  s.first_channel = span * p.span_channels + static_cast<long long>(block) * kChannels * blockDim.y;
  s.channel = s.first_channel + s.group * kChannels + s.channel_in_warp;
  s.live = s.channel < (span + 1) * p.span_channels;
  s.direction = blockIdx.y;
  s.reverse = (p.reverse != 0) != (s.direction != 0);
  const long long first = s.reverse ? p.seq - 1 : 0;
  s.offset = (s.batch * p.seq + first) * p.dim + s.channel;
  s.stride = s.reverse ? -p.dim : p.dim;
  return s;
}

// b and c, those that are not constant, staged row by row in pieces of kPiece elements. A thread copies the
// pieces `column`, column + kAcross, ... of the rows `row`, row + row_step, ... of each tile.
#if VECTOR_ROWS
constexpr int kPiece = 4;
#else
constexpr int kPiece = 1;
#endif
constexpr int kPieces = kRow / kPiece;
constexpr int kAcross = kPieces < 32 ? kPieces : 32;
constexpr int kProjections = !B_CONSTANT + !C_CONSTANT;
constexpr int kPointers = kProjections > 0 ? kProjections : 1;  // no array may be empty

struct Rows {
  const ProjectionStorage* from[kPointers];         // this thread's first piece of the tile to be staged next
  long long step[kPointers], tile_step[kPointers];  // to the next row, to the next tile
  float* buffers;          // this thread's first piece in the first of two buffers of
                           // the first projection
  ProjectionStorage* raw;  // likewise
  int buffer, raw_block;   // elements of one buffer, of one projection's raw block
  int row, row_step, rows;
};

EXPHIL_DEVICE void find_rows(Rows& r, int index, const Place& s, const Arguments& p, const void* data,
                             long long step, long long group_channels) {
  const long long first = s.batch * p.seq + (s.reverse ? p.seq - 1 : 0);
  const long long group = s.first_channel / group_channels;
  r.step[index] = s.reverse ? -step : step;
  r.tile_step[index] = r.rows * r.step[index];
  r.from[index] = static_cast<const ProjectionStorage*>(data) + first * step + group * kRowUsed +
                  s.lane % kAcross * kPiece + r.row * r.step[index];
}
EXPHIL_DEVICE Rows find_rows(const Place& s, const Arguments& p, char* memory, const Layout& layout) {
  const unsigned thread = threadIdx.x + 32 * (threadIdx.y + blockDim.y * threadIdx.z);
  Rows r;
  r.row = thread / kAcross, r.row_step = layout.warps() * (32 / kAcross), r.rows = layout.rows();
  const int at = r.row * kRow + s.lane % kAcross * kPiece;
  r.buffers = reinterpret_cast<float*>(memory) + at;
  r.raw = reinterpret_cast<ProjectionStorage*>(memory + layout.raw()) + at;
  r.buffer = layout.row_block() / 4;
  r.raw_block = layout.raw_block() / static_cast<int>(sizeof(ProjectionStorage));
#if !B_CONSTANT
  find_rows(r, 0, s, p, p.b, p.b_step, p.b_group_channels);
#endif
#if !C_CONSTANT
  find_rows(r, kProjections - 1, s, p, p.c, p.c_step, p.c_group_channels);
#endif
  return r;
}

// Starts the copy of the next tile's rows into buffer `parity`; those from `left` on and what lies beyond the
// state are zero. Halves land in `raw` and are widened by finish_rows, by the same threads.
EXPHIL_DEVICE void start_rows(Rows& r, int left, int parity) {
  const ProjectionStorage* from[kPointers];
#pragma unroll
  for (int k = 0; k < kProjections; ++k) from[k] = r.from[k], r.from[k] += r.tile_step[k];
  const int column = threadIdx.x % kAcross * kPiece;
  int at = 0;
#pragma unroll 1
  for (int row = r.row; row < r.rows; row += r.row_step, at += r.row_step * kRow) {
#pragma unroll
    for (int k = 0; k < kProjections; ++k) {
#pragma unroll
      for (int across = 0; across < kPieces; across += kAcross) {
        const int n = across * kPiece;
        const bool valid = row < left && (kRowUsed == kRow || n + column < kRowUsed);
        const ProjectionStorage* source = from[k] + n;  // not read where it is not valid
        float* to = r.buffers + (2 * k + parity) * r.buffer + at + n;
        if constexpr (kProjectionElement == device::kF32) {
          device::copy_async<4 * kPiece>(to, source, valid);
        } else if constexpr (kPiece == 4) {
          device::copy_async<8>(r.raw + k * r.raw_block + at + n, source, valid);
        } else {
          *to = valid ? device::widen<kProjectionElement>(*source) : 0.0f;
        }
      }
      from[k] += r.row_step * r.step[k];
    }
  }
}

EXPHIL_DEVICE void finish_rows(const Rows& r, int parity) {
  device::copies_done();
  if constexpr (kProjectionElement != device::kF32 && kPiece == 4) {
    int at = 0;
#pragma unroll 1
    for (int row = r.row; row < r.rows; row += r.row_step, at += r.row_step * kRow) {
#pragma unroll
      for (int k = 0; k < kProjections; ++k) {
#pragma unroll
        for (int across = 0; across < kPieces; across += kAcross) {
          const int n = at + across * kPiece;
          const ushort4 v = *reinterpret_cast<const ushort4*>(r.raw + k * r.raw_block + n);
          *reinterpret_cast<float4*>(r.buffers + (2 * k + parity) * r.buffer + n) =
              make_float4(device::widen<kProjectionElement>(v.x), device::widen<kProjectionElement>(v.y),
                          device::widen<kProjectionElement>(v.z), device::widen<kProjectionElement>(v.w));
        }
      }
    }
  }
}

EXPHIL_DEVICE void assign(float& to, const float* from) {
  to = from[0];
}
EXPHIL_DEVICE void assign(float2& to, const float* from) {
  to = make_float2(from[0], from[1]);
}
EXPHIL_DEVICE void assign(float* to, float from) {
  to[0] = from;
}
EXPHIL_DEVICE void assign(float* to, float2 from) {
  to[0] = from.x, to[1] = from.y;
}
EXPHIL_DEVICE void unpack(const float (&flat)[kStateFloats], State (&to)[kPerLane]) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) assign(to[i], flat + kFloats * i);
}
EXPHIL_DEVICE void pack(const State (&from)[kPerLane], float (&flat)[kStateFloats]) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) assign(flat + kFloats * i, from[i]);
}

// The values of b or c that belong to this lane's states: of one staged row, or of the constant {dim, state}.
EXPHIL_DEVICE void load_row(const float* row, State (&to)[kPerLane]) {
  float flat[kStateFloats];
  device::load_floats(row, flat);
  unpack(flat, to);
}
template <int E>
EXPHIL_DEVICE void load_constant(const void* data, const Place& s, State (&to)[kPerLane]) {
  float flat[kStateFloats];
#pragma unroll
  for (int i = 0; i < kStateFloats; ++i) {
    const int n = s.part * kStateFloats + i;
    const bool valid = s.live && n < kRowUsed;
    const auto* from = static_cast<const typename device::StorageOf<E>::Type*>(data);
    flat[i] = valid ? device::widen<E>(from[s.channel * kRowUsed + n]) : 0.0f;
  }
  unpack(flat, to);
}

// This lane's states in memory: {batch, dim, state} at channel index `row`.
EXPHIL_DEVICE void load_state(const float* data, const Place& s, long long row, State (&h)[kPerLane]) {
  float flat[kStateFloats];
#pragma unroll
  for (int i = 0; i < kStateFloats; ++i) {
    const int n = s.part * kStateFloats + i;
    const bool valid = data != nullptr && s.live && n < kRowUsed;
    flat[i] = valid ? __fmul_rn(data[row * kRowUsed + n], Rule::kStateScale) : 0.0f;
  }
  unpack(flat, h);
}
EXPHIL_DEVICE void store_state(float* data, const Place& s, long long row, const State (&h)[kPerLane]) {
  float flat[kStateFloats];
  pack(h, flat);
#pragma unroll
  for (int i = 0; i < kStateFloats; ++i) {
    const int n = s.part * kStateFloats + i;
    if (s.live && n < kRowUsed) data[row * kRowUsed + n] = __fmul_rn(flat[i], 1.0f / Rule::kStateScale);
  }
}

// This lane's way through one of x, dt, z and y: the address of its first element of a chunk.
struct Stream {
  const char* at;
};
EXPHIL_DEVICE Stream find_stream(const void* data, const Place& s) {
  const long long first = s.offset + (s.time * kSteps + s.part) * s.stride;
  return {static_cast<const char*>(data) + first * static_cast<long long>(sizeof(Storage))};
}
// Bytes from one of a lane's elements to the next.
EXPHIL_DEVICE long long element_step(const Place& s) {
  return kGroup * s.stride * static_cast<long long>(sizeof(Storage));
}

// How many of a chunk's steps this lane's channel has, when `left` steps of the sequence are left.
EXPHIL_DEVICE int steps_of(const Place& s, long long left) {
  const int some = left < kSteps ? static_cast<int>(left) : kSteps;
  return s.live ? some : 0;  // negative where the sequence has ended before
}
EXPHIL_DEVICE bool has_element(const Place& s, int steps, int q) {
  return q * kGroup + s.part < steps;
}
EXPHIL_DEVICE void load_elements(const Stream& from, const Place& s, int steps, Storage (&to)[kElements]) {
  const char* at = from.at;
#pragma unroll
  for (int q = 0; q < kElements; ++q, at += element_step(s)) {
    to[q] = Storage{};
    if (has_element(s, steps, q)) to[q] = *reinterpret_cast<const Storage*>(at);
  }
}

// dt' and v of every step of the chunk, for all lanes of its channel: pairs[step * kChannels + channel].
// Beyond the sequence both are zero, which leaves a state as it is.
EXPHIL_DEVICE void activate(const Storage (&x)[kElements], const Storage (&dt)[kElements], float bias,
                            const Arguments& p, const Place& s, int steps, float2* pairs) {
#pragma unroll
  for (int q = 0; q < kElements; ++q) {
    const float raw_x = device::widen<ELEMENT>(x[q]);
    const device::Real raw_dt{device::widen<ELEMENT>(dt[q])};
#if CLIP
    float active = formulas::activate_dt<device::Math>(raw_dt, device::Real{bias}, SOFTPLUS,
                                                       device::Real{p.dt_min}, device::Real{p.dt_max})
                       .v;
#else
    const device::Real biased = raw_dt + device::Real{bias};
    float active = SOFTPLUS ? formulas::softplus<device::Math>(biased).v : biased.v;
#endif
    float v = Rule::kPairHoldsX ? raw_x : __fmul_rn(active, raw_x);
    if (!has_element(s, steps, q)) active = 0.0f, v = 0.0f;
    if (kLanes <= kSteps || s.part < kSteps) {
      pairs[(q * kGroup + s.part) * kChannels + s.channel_in_warp] = make_float2(active, v);
    }
  }
}

// One lane's part of <C, h>: pairs of neighbouring states, then a tree over the pairs.
EXPHIL_DEVICE float read_out(const State (&h)[kPerLane], const State (&c)[kPerLane]) {
  constexpr int kPairs = kPerLane > 1 ? kPerLane / 2 : 1;
  float sums[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    sums[i] = Rule::read_out(h[2 * i], c[2 * i]);
    if constexpr (kPerLane > 1) sums[i] = Rule::read_out(h[2 * i + 1], c[2 * i + 1], sums[i]);
  }
#pragma unroll
  for (int width = 1; width < kPairs; width *= 2) {
#pragma unroll
    for (int i = 0; i + width < kPairs; i += 2 * width) sums[i] = __fadd_rn(sums[i], sums[i + width]);
  }
  return sums[0];
}

// y = (<C, h> + D x) silu(z) of one element, rounded to the caller's type.
EXPHIL_DEVICE void finish_element(float sum, Storage x, Storage z, float d, char* y) {
  float value = Rule::kReadOutScale == 1.0f ? sum : __fmul_rn(sum, Rule::kReadOutScale);
#if HAS_D
  value = __fmaf_rn(d, device::widen<ELEMENT>(x), value);
#endif
#if HAS_Z
  value = __fmul_rn(value, device::silu(device::widen<ELEMENT>(z)));
#endif
  *reinterpret_cast<Storage*>(y) = device::narrow<ELEMENT>(value);
}

}  // namespace scan
}  // namespace exphil
