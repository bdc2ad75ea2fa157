// The products of a tile of policy/scan_frame.cu in one block, and what the blocks of a cluster send each
// other.
//
// A warp has a segment of a product's inner dimension and up to 128 columns. It holds their weights in
// registers for all agents of the tile: shared memory hands a warp a word for each lane in a cycle, even
// where all of them read the same, so that each value that is read has to be used for several columns, here
// four. The order of each sum is that of policy/dot.cuh: a frame has the bits of a step.
#pragma once

#include "kernels/common/device_memory.cuh"
#include "kernels/policy/awaited_frames.cuh"
#include "kernels/policy/product.cuh"
#include "kernels/policy/rows.cuh"
#include "kernels/policy/scan_frame_layout.cuh"

namespace exphil {
namespace policy {

#if EXPHIL_CLUSTERS

constexpr ScanLayer kLayer = scan_layer(kNetwork);
constexpr ScanFrameShape kShape = scan_frame_shape(kNetwork, ROWS);
static_assert(kShape.team == TEAM, "as the host has it");

constexpr int kThreads = kScanFrameThreads, kWarps = kScanFrameWarps, kFours = kSegment / 4;
constexpr int kOwn = kShape.own, kShare = kShape.share;
constexpr Scan kScan = kNetwork.scans[kLayer.scan];
constexpr Convolution kConvolution = kNetwork.convolutions[kLayer.convolution];
constexpr int kHidden = size_of(kNetwork.hidden), kFrame = size_of(kNetwork.frame);
constexpr int kChannels = size_of(kScan.x), kCommon = frame_columns(kNetwork, kLayer);
constexpr int kPast = kConvolution.taps - 1, kOutputs = kShape.outputs;
constexpr bool kHasInput = input_product(kNetwork) != kNoPhase, kHasMean = kLayer.mean != kNoPhase,
               kAnswers = kOutputs > 0;

constexpr int kXStride = kHidden + kValuesApart, kUStride = kOwn + kValuesApart,
              kYStride = kChannels + kValuesApart, kFrameStride = kFrame + kValuesApart;

// What the blocks send each other: once the places of the states, that the frames are there, those, and what
// the answers are made of; in a layer b and c before they are added up, the sums of dt, what the scan gives,
// and hidden. Each round of a layer needs what all blocks have sent in the one before, so that no block is a
// round ahead.
enum class Round : int { places, news, frames, answers, parts, means, scanned, hidden };
static_assert(static_cast<int>(Round::hidden) + 1 == kScanFrameWords, "a word for each");

struct ScanFrameShared {
  alignas(16) float x[ROWS][kXStride];  // hidden
  alignas(16) float wide[wide_floats(kNetwork, kLayer, kShape)];
  alignas(16) float parts[part_floats(kNetwork, kLayer, kShape)];
  alignas(16) float history[history_floats(kNetwork, kLayer, kShape)];
  alignas(16) float u[ROWS][kUStride];  // what the convolution gives
  alignas(16) float z[ROWS][kOwn], dt[ROWS][kOwn];
  alignas(16) float common[ROWS][kCommon];              // b, c and what dt is made of
  alignas(16) float means[ROWS][kChannels / kSegment];  // of dt: the sums of its segments
  alignas(16) StatePlace places[ROWS];
  NormFactors norms[ROWS];
  alignas(16) float mean[round_up(ROWS, 4)];
  alignas(16) unsigned char staged[most(kShape.staged, 1)];
  device::Arrivals arrived[kScanFrameWords];
};
static_assert(sizeof(ScanFrameShared) == kShape.shared, "as the host has it");

// A product in one block: of each output kEachOutput values from rank * kEachOutput on; or (kDepth) of the
// inner dimension as many, for all columns.
template <int kIndex, int kEachOutput, bool kDepth = false>
struct BlockProduct : PhaseProduct<kIndex> {
  using P = PhaseProduct<kIndex>;
  static constexpr bool kParts = kDepth;
  static constexpr int kAll = kDepth ? round_up(P::kOutputs, 4) : P::kProduct.outputs * kEachOutput;
  static constexpr int kTiles = divide_up(kAll, 32);
  static constexpr int kAllSegments = P::kK / kSegment;
  static constexpr int kSegments = kDepth ? kEachOutput / kSegment : kAllSegments;
  // Tiles of a warp, and the warps that share the agents of a task.
  static constexpr int kSets = kTiles % 4 == 0 ? 4 : kTiles % 2 == 0 ? 2 : 1;
  static constexpr int kTasks = kSegments * (kTiles / kSets);
  static constexpr int kGroups = power_of_two_within(most(1, kWarps / kTasks));
  static constexpr int kUnits = kTasks * kGroups, kStride = kAll + kSumsApart;
  // A lane has four columns, and 4 / kSets lanes beside each other other rows.
  static constexpr int kLaneColumns = 8 * kSets, kLaneRows = 32 / kLaneColumns;

  // The product's column of one of the block's.
  static __device__ __forceinline__ int column(int rank, int own) {
    if constexpr (kDepth) return own;
    return own / kEachOutput * size_of(P::kProduct.out[0].vector) + rank * kEachOutput + own % kEachOutput;
  }
};
using OfInput = BlockProduct<most(input_product(kNetwork), 0), kShare>;
using OfIn = BlockProduct<kLayer.in, kOwn>;
using OfParts = BlockProduct<kLayer.parts, kOwn, true>;
using OfHidden = BlockProduct<kLayer.out, kShare>;
using OfAnswers = BlockProduct<most(output_product(kNetwork), 0), kShare, true>;

class ScanFrameSums {
 public:
  __device__ __forceinline__ ScanFrameSums(const ScanFrameArguments& args, ScanFrameShared& shared)
      : args_(args),
        shared_(shared),
        thread_(device::launder(static_cast<int>(threadIdx.x))),
        warp_(uniform(thread_ / 32)),
        lane_(thread_ % 32),
        rank_(static_cast<int>(blockIdx.x) % TEAM),
        tile_(static_cast<int>(blockIdx.x) / TEAM),
        first_row_(first_of_tile(args, tile_)),
        rows_(uniform(static_cast<int>(first_of_tile(args, tile_ + 1) - first_row_))) {}

 protected:
  // A number that all lanes of a warp have, so that the compiler knows it: where it cannot tell that lanes
  // leave a loop together, shuffles behind it take a slow way.
  static __device__ __forceinline__ int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

  __device__ __forceinline__ long long bytes_to(int layer) const { return layer * args_.layer_stride; }
  __device__ __forceinline__ ProductMatrix matrix(const ProductMatrix& first, int layer) const {
    return of_layer(first, bytes_to(layer));
  }

  // ---- sums ----

  // Not behind what follows: it is there for that.
  static __device__ __forceinline__ float4 weight_ahead(const float4* from) {
    return device::load_ahead(reinterpret_cast<const float*>(from));
  }
  template <class Narrow>
  static __device__ __forceinline__ float4 weight_ahead(const Narrow* from) {
    return widen(__ldg(from));
  }
  // The weights of one of a product's tasks, which go to unit / kGroups.
  template <class B>
  __device__ __forceinline__ void hold(const ProductMatrix& of, int unit) {
    constexpr int kColumns = product_columns(B::kOutputs);
    const int task = unit / B::kGroups, first = task / B::kSegments * (32 * B::kSets);
    const int segment = task % B::kSegments + (B::kParts ? rank_ * B::kSegments : 0);
    const auto* const from = static_cast<const Group*>(of.weights) + segment * kFours * kColumns;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = B::column(rank_, first + lane_ % B::kLaneColumns + B::kLaneColumns * j);
#pragma unroll
      for (int g = 0; g < kFours; ++g) held_[j][g] = weight_ahead(from + g * kColumns + column);
    }
  }
  // Of the warp's first one, before what it multiplies is there.
  template <class B>
  __device__ __forceinline__ void hold(const ProductMatrix& of) {
    if (warp_ < B::kUnits) hold<B>(of, warp_);
  }
  // Of its second one, which has 32 columns: to shared memory, and from there.
  using Staged = Group[kFours][32];
  __device__ __forceinline__ Staged& staged() const {
    return reinterpret_cast<Staged*>(shared_.staged)[warp_];
  }
  template <class B>
  __device__ __forceinline__ void stage(const ProductMatrix& of) const {
    static_assert(B::kUnits == 2 * kWarps && B::kGroups == 1 && B::kAll == 32, "two units for each warp");
    constexpr int kColumns = product_columns(B::kOutputs);
    const auto* const from = static_cast<const Group*>(of.weights) + (warp_ + kWarps) * kFours * kColumns +
                             B::column(rank_, lane_);
#pragma unroll
    for (int g = 0; g < kFours; ++g) {
      device::copy_async<sizeof(Group)>(&staged()[g][lane_], from + g * kColumns, true);
    }
  }
  template <class B>
  __device__ __forceinline__ void hold_staged() {
    device::copies_done();
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int g = 0; g < kFours; ++g) {
        held_[j][g] = widen(staged()[g][lane_ % B::kLaneColumns + B::kLaneColumns * j]);
      }
    }
  }
  // All segments' sums: to[segment][row][column], with the block's columns; x: {rows, kRowStride}, from the
  // block's first segment on.
  template <class B, int kRowStride, bool kIsStaged = false>
  __device__ __forceinline__ void add_up(const ProductMatrix& of, const float* x, float* to) {
#pragma unroll 1
    for (int unit = warp_; unit < B::kUnits; unit += kWarps) {
      if (unit != warp_) {
        if constexpr (kIsStaged) {
          hold_staged<B>();
        } else {
          hold<B>(of, unit);
        }
      }
      const int task = unit / B::kGroups, segment = task % B::kSegments;
      const int first = task / B::kSegments * (32 * B::kSets);
      const float* const values = x + segment * kSegment;
      float* const sums = to + segment * (ROWS * B::kStride) + first;
      add_rows<B, kRowStride>(values, sums, first, unit % B::kGroups);
    }
  }
  template <class B, int kRowStride>
  __device__ __forceinline__ void add_rows(const float* values, float* sums, int first, int group) const {
    constexpr int kLanes = B::kLaneColumns, kTogether = B::kLaneRows;
    const int column = lane_ % kLanes;
#pragma unroll 2
    for (int base = group * kTogether; base < rows_; base += B::kGroups * kTogether) {
      const int row = base + lane_ / kLanes;
      const auto* const from = reinterpret_cast<const float4*>(values + least(row, rows_ - 1) * kRowStride);
      float sum[4] = {};
#pragma unroll
      for (int g = 0; g < kFours; ++g) {
        const float4 value = from[g];
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[j] = dot4(held_[j][g], value, sum[j]);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int own = column + kLanes * j;
        if (row < rows_ && first + own < B::kAll) sums[row * B::kStride + own] = sum[j];
      }
    }
  }
  // What the thread's columns have beside their weights, where it has one: before the sums.
  template <class B>
  static constexpr bool kOneColumn = kThreads % B::kAll == 0;
  template <class B>
  __device__ __forceinline__ ProductColumn column_of(const ProductMatrix& of, int own) const {
    return ProductColumn::of<B>(of, least(B::column(rank_, own), B::kOutputs - 1));
  }
  template <class B>
  __device__ __forceinline__ ProductColumn column_of(const ProductMatrix& of) const {
    return kOneColumn<B> ? column_of<B>(of, thread_ % B::kAll) : ProductColumn{};
  }
  // Calls put(row, own, column, by, sum) for all results, own and column: of the block and of the product.
  // kSegments: which the sums have.
  template <class B, int kSegments, class Put>
  __device__ __forceinline__ void finish(const ProductMatrix& of, const ProductColumn& by, const float* sums,
                                         Put put) const {
#pragma unroll 2
    for (int at = thread_; at < rows_ * B::kAll; at += kThreads) {
      const int row = at / B::kAll, own = at % B::kAll;
      const float sum = add_segments<kSegments>(sums + row * B::kStride + own, ROWS * B::kStride);
      put(row, own, B::column(rank_, own), kOneColumn<B> ? by : column_of<B>(of, own), sum);
    }
  }
  // The factors of the norm of each row of what a product reads.
  template <class B, int kRowStride>
  __device__ __forceinline__ void find_norms(const float* x, float epsilon, bool first_layer) const {
    if constexpr (B::kNormed) {
      const NormArguments of{epsilon, first_layer ? 1 : 0};
      for (int row = warp_; row < rows_; row += kWarps) {
        const NormFactors found = row_factors<B>(x + row * kRowStride, of);
        if (lane_ == 0) shared_.norms[row] = found;
      }
    }
  }
  template <class B>
  __device__ __forceinline__ NormFactors norm_of(int row) const {
    if constexpr (B::kNormed) return shared_.norms[row];
    return {1.0f, 0.0f};
  }

  // ---- what blocks send each other ----

  __device__ __forceinline__ device::Arrivals* word_of(Round round) const {
    return &shared_.arrived[static_cast<int>(round)];
  }
  __device__ __forceinline__ void expect(Round round, int bytes) const {
    device::expect_bytes(word_of(round), static_cast<unsigned>(bytes));
  }
  // Runs of kFloats values, which begin at place(run), to the same places of all other blocks, each of which
  // sends as many. The own ones have been written before a barrier of the block.
  template <int kFloats, class Place>
  __device__ __forceinline__ void send(Round round, int runs, Place place) const {
    using Word = typename SentBy<kFloats % 4 == 0>::Type;
    constexpr int kWords = kFloats * 4 / static_cast<int>(sizeof(Word));
    if (thread_ == 0) expect(round, (TEAM - 1) * runs * kFloats * 4);
    __syncwarp();  // who says how many are expected does not come behind those that wait for them
    for (int at = thread_; at < runs * kWords; at += kThreads) {
      auto* const word = reinterpret_cast<Word*>(place(at / kWords)) + at % kWords;
      const Word value = *word;
#pragma unroll
      for (int other = 1; other < TEAM; ++other) {
        device::send(word, (rank_ + other) % TEAM, value, word_of(round));
      }
    }
  }
  // The same of rows that are `apart` floats one after another.
  template <int kFloats>
  __device__ __forceinline__ void send_rows(Round round, float* first, int apart) const {
    send<kFloats>(round, rows_, [&](int row) { return first + row * apart; });
  }
  // count: of the round among those of its kind.
  __device__ __forceinline__ void await(Round round, int count) const {
    device::await_bytes(word_of(round), static_cast<unsigned>(count % 2));
  }

  const ScanFrameArguments& args_;
  ScanFrameShared& shared_;
  const int thread_, warp_, lane_, rank_, tile_;
  const long long first_row_;
  const int rows_;
  float4 held_[4][kFours];

 private:
  template <bool kFour, int kUnused = 0>
  struct SentBy {
    using Type = float4;
  };
  template <int kUnused>
  struct SentBy<false, kUnused> {
    using Type = float;
  };
};

#endif

}  // namespace policy
}  // namespace exphil
