// The parts of scan/short.cu: its sizes, all of them -D defines, the position of a thread's work, a block's
// shared memory and the copies into it, and the summaries that blocks send each other.
#pragma once

#include "kernels/scan/cluster.cuh"

namespace exphil {
namespace scan_short {

using namespace scan;

using Rule = RealRule<static_cast<Discretization>(DISCRETIZATION)>;

constexpr int kBlocks = CLUSTER_BLOCKS;  // of a cluster, one after another in time
constexpr int kSteps = kShortSteps;      // of a chunk, which is one lane's
constexpr int kChunks = kShortChunks;    // of a block: lanes that follow each other in time
constexpr int kTile = kSteps * kChunks;  // steps of a block
constexpr int kChannels = 32 / kChunks;  // of a warp: lanes side by side
constexpr int kStates = kShortStates;    // of a lane
constexpr int kParts = STATE / kStates;  // warps that share the states of a channel
constexpr int kChannelWarps = CHANNEL_WARPS, kAcross = kChannelWarps * kChannels;  // side by side
constexpr int kThreads = 32 * kChannelWarps * kParts;
constexpr int kQuads = kSteps / 4;
static_assert(kBlocks == kShortBlocks && kBlocks <= kChunks, "a chunk of lanes sends to each block");
static_assert(kStates * kChannels == 32, "a lane receives one state of one of the warp's channels");

// A gap of 16 bytes follows a chunk's rows, so that words that the chunks of a warp read together are on
// different banks.
constexpr int kRowChunk = kSteps * STATE + 4;
constexpr int kElementChunk = kSteps * kAcross + 16 / static_cast<int>(sizeof(Storage));
constexpr int kSumChunk = kQuads * kAcross + kChannels;

// The effect of a block's steps on one state: it is multiplied by `total`, and `end` is added. Two words;
// each stores zero bits above its float, and a cleared word does not, so a reader polls the words without a
// flag or a fence.
using Word = unsigned long long;
struct alignas(16) Summary {
  Word total, end;
};

struct alignas(16) Shared {
  float b[kChunks * kRowChunk], c[kChunks * kRowChunk];
  Storage x[kChunks * kElementChunk], dt[kChunks * kElementChunk];
#if HAS_Z
  Storage z[kChunks * kElementChunk];
#endif
#if ELEMENT != 0
  Storage raw[2][kTile * STATE];  // b and c in their stored type
#endif
  Summary inbox[kChannelWarps * kParts][kBlocks][32];  // by the sending block
  float4 sums[kParts][kChunks * kSumChunk];            // every warp's part of y, four steps together
};
static_assert(sizeof(Shared) == short_bytes(STATE, CHANNEL_WARPS, sizeof(Storage), HAS_Z),
              "the launcher's count");

struct Place : ThreadPlace<int> {
  int chunk, across;  // of the warp: the lane's in time, its channel
  int warp, thread;   // of the block
  int part;           // of the channel's states, kStates each
  int block;          // of the cluster
  int steps;          // of the sequence, from the block's first on

  // The row of {batch, seq} that is the block's position-th in scan order.
  EXPHIL_DEVICE long long block_row(const Arguments& p, int position) const {
    return row(p, block * kTile + position);
  }
};

struct Threads : ThreadLayout {
  using Index = int;
  static constexpr int kColumns = kChannels, kClusterBlocks = kBlocks;
  static constexpr bool kLanesInTime = true;
};
EXPHIL_DEVICE Place find_place(const Arguments& p) {
  const int warp = threadIdx.y;
  Place s{scan::find_place<Threads>(p, warp % kChannelWarps, kChannelWarps)};
  s.warp = warp, s.thread = s.lane + 32 * warp;
  s.chunk = s.lane / kChannels, s.across = s.lane % kChannels;
  s.part = warp / kChannelWarps;
  s.block = blockIdx.x % kBlocks;
  s.steps = static_cast<int>(p.seq) - s.block * kTile;
  return s;
}

// How the block's threads share the rows of x, dt and z, and those of b and c.
using ElementShare = Share<kThreads, kTile, kAcross / PIECE, PIECE>;
using RowShare = Share<kThreads, kTile, STATE / 4, 4>;

// Starts the copy of the block's part of x, dt or z, PIECE elements at a time; zeros beyond the data. first:
// the thread's first element in {batch, seq, dim}.
EXPHIL_DEVICE void start_elements(const Arguments& p, const Place& s, const void* data, long long first,
                                  Storage* to) {
  const long long step = ElementShare::kRows * (s.reverse ? -p.dim : p.dim);
  const Storage* const from = static_cast<const Storage*>(data) + first;
  const int column = ElementShare::column(s.thread);
  ElementShare::visit_all(s.thread, [&](int i, int) {
    const int row = i + ElementShare::row(s.thread);
    device::copy_async<PIECE* static_cast<int>(sizeof(Storage))>(
        to + row * kAcross + row / kSteps * (kElementChunk - kSteps * kAcross) + column,
        from + i / ElementShare::kRows * step, row < s.steps && column < s.channels);
  });
}
// Starts the copy of the block's rows of b or c, four elements at a time.
EXPHIL_DEVICE void start_rows(const Arguments& p, const Place& s, const void* data, long long step,
                              long long group, float* to, Storage* raw) {
  const int column = RowShare::column(s.thread);
  const Storage* const from = static_cast<const Storage*>(data) +
                              s.block_row(p, RowShare::row(s.thread)) * step + group * STATE + column;
  step *= RowShare::kRows * (s.reverse ? -1 : 1);
  RowShare::visit_all(s.thread, [&](int i, int) {
    const int row = i + RowShare::row(s.thread);
    void* const target = ELEMENT == 0 ? static_cast<void*>(to + row * STATE + row / kSteps * 4 + column)
                                      : raw + row * STATE + column;
    device::copy_async<4 * static_cast<int>(sizeof(Storage))>(target, from + i / RowShare::kRows * step,
                                                              row < s.steps);
  });
}
EXPHIL_DEVICE void start_copies(const Arguments& p, const Place& s, Shared& shared) {
#if ELEMENT != 0
  Storage *const raw_b = shared.raw[0], *const raw_c = shared.raw[1];
#else
  Storage *const raw_b = nullptr, *const raw_c = nullptr;
#endif
  const long long first =
      s.block_row(p, ElementShare::row(s.thread)) * p.dim + s.first + ElementShare::column(s.thread);
  start_elements(p, s, p.dt, first, shared.dt);
  start_elements(p, s, p.x, first, shared.x);
  start_rows(p, s, p.b, p.b_step, s.first / p.b_group_channels, shared.b, raw_b);
  start_rows(p, s, p.c, p.c_step, s.first / p.c_group_channels, shared.c, raw_c);
#if HAS_Z
  start_elements(p, s, p.z, first, shared.z);
#endif
}
// Waits for all copies; then the threads that copied halves of b and c convert them to floats.
EXPHIL_DEVICE void finish_copies(const Place& s, Shared& shared) {
  device::copies_done();
#if ELEMENT != 0
  const int column = RowShare::column(s.thread);
  RowShare::visit_all(s.thread, [&](int i, int) {
    const int row = i + RowShare::row(s.thread), from = row * STATE + column, to = from + row / kSteps * 4;
    *reinterpret_cast<float4*>(shared.b + to) = device::widen_four<ELEMENT>(shared.raw[0] + from);
    *reinterpret_cast<float4*>(shared.c + to) = device::widen_four<ELEMENT>(shared.raw[1] + from);
  });
#endif
  __syncthreads();
}

EXPHIL_DEVICE void send(Summary* place, int block, float total, float end) {
  asm volatile(
      "st.relaxed.cluster.shared::cluster.v2.u64 [%0], {%1, %2};" ::"r"(cluster_address(place, block)),
      "l"(static_cast<Word>(__float_as_uint(total))), "l"(static_cast<Word>(__float_as_uint(end)))
      : "memory");
}
// Waits for the words of all lanes of the warp.
EXPHIL_DEVICE void receive(const Summary* place, float* total, float* end) {
  Word words[2];
  do {
    asm volatile("ld.relaxed.cluster.shared.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words[0]), "=l"(words[1])
                 : "r"(shared_address(place))
                 : "memory");
  } while (__any_sync(0xffffffffu, (words[0] | words[1]) >> 32 != 0));
  *total = __uint_as_float(static_cast<unsigned>(words[0]));
  *end = __uint_as_float(static_cast<unsigned>(words[1]));
}
EXPHIL_DEVICE void clear_inbox(const Place& s, Shared& shared) {
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) shared.inbox[s.warp][block][s.lane] = {~Word{0}, ~Word{0}};
}
}  // namespace scan_short
}  // namespace exphil
