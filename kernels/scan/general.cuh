// How scan/general.cu divides its work and moves its data: staging of b and c in shared memory, a lane's
// states, and its elements of x, dt, z and y. All sizes are -D defines.
//
// A block processes time in tiles of STEPS steps. A warp has 32 / LANES neighbouring channels; the LANES
// lanes of a channel hold PER_LANE states each. A channel's elements of x, dt, z and y are divided by time:
// lane j has the steps j, j + LANES, ...; all channels of the block share b and c.
#pragma once

#include "kernels/scan/frame.cuh"
#include "kernels/scan/reduce.cuh"

namespace exphil {
namespace scan {

constexpr auto kRule = static_cast<Discretization>(DISCRETIZATION);
#if COMPLEX
using Rule = ComplexRule<kRule>;
#else
using Rule = RealRule<kRule>;
#endif
using State = Rule::State;
// b and c: of x's type, or pairs of f32.
constexpr int kProjectionElement = COMPLEX ? device::kF32 : ELEMENT;
using ProjectionStorage = device::StorageOf<kProjectionElement>::Type;

constexpr int kFloats = Rule::kFloats;
constexpr int kLanes = LANES, kPerLane = PER_LANE, kSteps = STEPS;
constexpr int kChannels = 32 / kLanes;
constexpr int kStateFloats = kPerLane * kFloats;
constexpr int kRow = kLanes * kStateFloats;
constexpr int kRowUsed = STATE * kFloats;
constexpr int kSumSteps = kLanes < kSteps ? kLanes : kSteps;  // steps whose sums are reduced together
constexpr int kElements = kSteps / kSumSteps;                 // of x, dt, z, y for each lane and tile

struct Place : ThreadPlace<long long> {
  long long offset, stride;  // the channel's first element of x, dt, z and y in scan order, and the stride
};
struct Threads : ThreadLayout {
  static constexpr int kColumns = kChannels;
};
EXPHIL_DEVICE Place find_place(const Arguments& p) {
  Place s{find_place<Threads>(p, threadIdx.y, blockDim.y)};
  s.offset = s.row(p, 0) * p.dim + s.channel;
  s.stride = s.step(p.dim);
  return s;
}

// The b and c that are not constant, staged row by row in pieces of kPiece elements. A thread copies the
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
  const ProjectionStorage* from[kPointers];         // this thread's first piece of the next tile to stage
  long long step[kPointers], tile_step[kPointers];  // to the next row, to the next tile
  float* buffers;          // this thread's first piece in the first of the first projection's two buffers
  ProjectionStorage* raw;  // likewise
  int buffer, raw_block;   // elements of one buffer, of one projection's raw block
  int row, row_step;
};

EXPHIL_DEVICE void find_rows(Rows& r, int index, const Place& s, const Arguments& p, const void* data,
                             long long step, long long group_channels) {
  const long long group = s.first / group_channels;
  r.step[index] = s.step(step);
  r.tile_step[index] = kSteps * r.step[index];
  r.from[index] = static_cast<const ProjectionStorage*>(data) + s.row(p, 0) * step + group * kRowUsed +
                  s.lane % kAcross * kPiece + r.row * r.step[index];
}
EXPHIL_DEVICE Rows find_rows(const Place& s, const Arguments& p, char* memory, const Layout& layout) {
  const unsigned thread = threadIdx.x + 32 * threadIdx.y;
  Rows r;
  r.row = thread / kAcross, r.row_step = layout.warps * (32 / kAcross);
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

// Starts the copy of the next tile's rows into buffer `parity`; rows from `left` on and elements beyond the
// state are zero. Halves are copied to `raw` and widened by finish_rows, by the same threads.
EXPHIL_DEVICE void start_rows(Rows& r, int left, int parity) {
  const ProjectionStorage* from[kPointers];
#pragma unroll
  for (int k = 0; k < kProjections; ++k) from[k] = r.from[k], r.from[k] += r.tile_step[k];
  const int column = threadIdx.x % kAcross * kPiece;
  int at = 0;
#pragma unroll 1
  for (int row = r.row; row < kSteps; row += r.row_step, at += r.row_step * kRow) {
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
    for (int row = r.row; row < kSteps; row += r.row_step, at += r.row_step * kRow) {
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

// The values of b or c for this lane's states: from a staged row, or from the constant {dim, state}.
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

// This lane's first element of one of x, dt, z and y.
EXPHIL_DEVICE const char* find_elements(const void* data, const Place& s) {
  const long long first = s.offset + s.part * s.stride;
  return static_cast<const char*>(data) + first * static_cast<long long>(sizeof(Storage));
}
// Bytes between consecutive elements of a lane.
EXPHIL_DEVICE long long element_step(const Place& s) {
  return kSumSteps * s.stride * static_cast<long long>(sizeof(Storage));
}

// The number of a tile's steps in this lane's channel, when `left` steps of the sequence remain.
EXPHIL_DEVICE int steps_of(const Place& s, long long left) {
  const int some = left < kSteps ? static_cast<int>(left) : kSteps;
  return s.live ? some : 0;
}
EXPHIL_DEVICE bool has_element(const Place& s, int steps, int q) {
  return q * kSumSteps + s.part < steps;
}
EXPHIL_DEVICE void load_elements(const char* at, const Place& s, int steps, Storage (&to)[kElements]) {
#pragma unroll
  for (int q = 0; q < kElements; ++q, at += element_step(s)) {
    to[q] = Storage{};
    if (has_element(s, steps, q)) to[q] = *reinterpret_cast<const Storage*>(at);
  }
}

}  // namespace scan
}  // namespace exphil
