// A block's part of a tile of policy/batch_frame.cu: its agents, and the sums of the products for them.
#pragma once

#include "kernels/common/device_memory.cuh"
#include "kernels/policy/awaited_frames.cuh"
#include "kernels/policy/batch_frame_layout.cuh"
#include "kernels/policy/cell_batch.cuh"

namespace exphil {
namespace policy {

#if EXPHIL_CLUSTERS

constexpr FrameShape kShape = frame_shape(kNetwork, CELL, ROWS, CHUNK);
static_assert(kShape.team == TEAM, "a block for each of kFrameUnits units");

// The output; where it is not in the launch it has no columns.
constexpr bool kAnswers = kShape.outputs > 0;
constexpr int kOuts = most(kShape.outs, 1);
using O = PhaseProduct<most(output_product(kNetwork), 0)>;

// Of those that compute: the first ones of a block.
constexpr int kWarps = kShape.warps, kThreads = 32 * kWarps;

// Registers of a thread that reads; of each when the launch begins; and of one that computes, which has what
// the others give.
constexpr int kReading = 56, kAtFirst = least(65536 / kShape.threads() / 8 * 8, 248);
constexpr int kComputing =
    least((kShape.threads() * kAtFirst - 32 * kReadingWarps * kReading) / kThreads / 8 * 8, 240);

constexpr int kFours = kSegment / 4;
constexpr int kStride = frame_stride(kNetwork, kIt), kSegments = kStride / kSegment;
constexpr int kEach = divide_up(CHUNK, kWarps);  // rows of a chunk that a warp has
constexpr int kSumRow = kGates * kFrameUnits, kSums = kSegments * CHUNK * kSumRow;
constexpr int kChunks = divide_up(ROWS, CHUNK);
constexpr int kOwnRows = divide_up(ROWS, TEAM);  // of a tile, whose answers a block writes

struct FrameShared {
  alignas(16) float x[ROWS][kStride];         // hidden, or a layer's states
  alignas(16) float sums[kSums];              // of segments {rows of a chunk, gates, units}
  alignas(16) float made[ROWS][kFrameUnits];  // hidden after the layer
  alignas(16) float kept[CHUNK][kGates + kStates][kFrameUnits];  // what the cells of a chunk read: h, states
  NormFactors norms[ROWS];                                       // of the output
  alignas(16) Group out_weights[kAnswers ? O::kK / 4 * kOuts : 1];
  alignas(16) StatePlace places[ROWS];
  alignas(16) float answers[kAnswers ? kOwnRows * kShape.outputs : 1];
  struct alignas(16) {
    device::Arrivals places;
    device::Arrivals frames[kChunks], news[kChunks];  // of each chunk; and that they may be read
    float news_place;
  } come;
};
static_assert(sizeof(FrameShared) == kShape.shared, "as the host has it");

// Products of layers by number: those that make h of all layers, then those that make x.
class FrameSums {
 public:
  __device__ __forceinline__ FrameSums(const FrameArguments& args, FrameShared& shared)
      : args_(args),
        shared_(shared),
        thread_(device::launder(static_cast<int>(threadIdx.x))),
        warp_(thread_ / 32),
        lane_(thread_ % 32),
        rank_(static_cast<int>(blockIdx.x) % TEAM),
        unit_(rank_ * kFrameUnits + lane_),
        tile_(static_cast<int>(blockIdx.x) / TEAM),
        first_row_(first_of_tile(args, tile_)),
        rows_(static_cast<int>(first_of_tile(args, tile_ + 1) - first_row_)),
        chunks_(divide_up(rows_, args.chunk_rows)) {}

 protected:
  __device__ __forceinline__ int rows_of(int chunk) const {
    return least(args_.chunk_rows, rows_ - chunk * args_.chunk_rows);
  }
  // Of the tile's agents those from number `first` on.
  struct Chunk {
    int first, count;
  };
  __device__ __forceinline__ Chunk chunk_of(int chunk) const {
    return {chunk * args_.chunk_rows, rows_of(chunk)};
  }
  // The sums of product `number` for each chunk, after begin(its number), and then finish(chunk), by each
  // warp for its rows.
  template <class Begin, class Finish>
  __device__ __forceinline__ void for_each_chunk(int number, Begin begin, Finish finish) {
#pragma unroll 1
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      begin(chunk);
      add_up(number, chunk_of(chunk));
      sync();
      finish(chunk_of(chunk));
      sync();
    }
  }
  // All that compute.
  static __device__ __forceinline__ void sync() {
    device::sync_some(kThreads);
  }
  __device__ __forceinline__ long long state_at(int layer) const {
    return layer * args_.layer_floats + kIt.state_at;
  }
  __device__ __forceinline__ float* place_of_h(int row, int layer, int gate) const {
    return args_.h + ((first_row_ + row) * kNetwork.layers + layer) * H::kOutputs + gate * kUnits + unit_;
  }
  // Calls call(i, row) for the warp's rows of the chunk, by their numbers in the tile.
  template <class Call>
  __device__ __forceinline__ void for_each_row(const Chunk& chunk, Call call) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int own = warp_ + i * kWarps;
      if (own < chunk.count) call(i, chunk.first + own);
    }
  }

  static __device__ __forceinline__ bool is_of_h(int number) {
    return number < kNetwork.layers;
  }
  // Those of hidden beyond its values would add nothing: they are zeros.
  static __device__ __forceinline__ int segments_of(int number) {
    if (is_of_h(number)) return H::kK / kSegment;
    return divide_up(number == kNetwork.layers ? X::kFirst : X::kValues, kSegment);
  }
  __device__ __forceinline__ ProductMatrix matrix_of(int number) const {
    return is_of_h(number) ? of_layer(args_.of_h, number * args_.layer_stride)
                           : of_layer(args_.of_x, (number - kNetwork.layers) * args_.layer_stride);
  }
  // The weights of a segment for the lane's unit.
  __device__ __forceinline__ void hold(int number, int segment) {
    constexpr int kColumns = product_columns(X::kOutputs);
    static_assert(kColumns == product_columns(H::kOutputs), "as many columns of both");
    const auto* const from =
        static_cast<const Group*>(matrix_of(number).weights) + segment * kFours * kColumns + unit_;
#pragma unroll
    for (int g = 0; g < kFours; ++g) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        held_[gate][g] = widen(__ldg(from + g * kColumns + gate * kUnits));
      }
    }
  }
  // Of the warp's first segment of a product, where it has one.
  __device__ __forceinline__ void hold(int number) {
    if (warp_ < segments_of(number)) hold(number, warp_);
  }
  __device__ __forceinline__ float* sum_of(int segment, int own) const {
    return shared_.sums + (segment * CHUNK + own) * kSumRow + lane_;
  }
  __device__ __forceinline__ void add_segment(const Chunk& chunk, int segment) const {
#pragma unroll 2
    for (int own = 0; own < chunk.count; ++own) {
      const auto* const x =
          reinterpret_cast<const float4*>(&shared_.x[chunk.first + own][segment * kSegment]);
      float sum[kGates] = {};
#pragma unroll
      for (int g = 0; g < kFours; ++g) {
        const float4 value = x[g];
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) sum[gate] = dot4(held_[gate][g], value, sum[gate]);
      }
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) sum_of(segment, own)[gate * kFrameUnits] = sum[gate];
    }
  }
  // The sums of a product's segments for the chunk. The warps hold their first weights; of the tile's last
  // chunk they then hold the next product's.
  __device__ __forceinline__ void add_up(int number, const Chunk& chunk) {
    const int segments = segments_of(number);
    const bool last = chunk.first + chunk.count == rows_;
    if (warp_ < segments) add_segment(chunk, warp_);
    if (segments > kWarps) {
      for (int segment = warp_ + kWarps; segment < segments; segment += kWarps) {
        hold(number, segment);
        add_segment(chunk, segment);
      }
      if (!last) hold(number);
    }
    if (last && number + 1 < 2 * kNetwork.layers) hold(number + 1);
  }
  // The sums of all segments, for the rows of the warp.
  __device__ __forceinline__ void total(int segments, float (&sums)[kEach][kGates]) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) sums[i][gate] = 0.0f;
    }
    const float* from = sum_of(0, warp_);
#pragma unroll 3
    for (int segment = 0; segment < segments; ++segment, from += CHUNK * kSumRow) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        // Of rows beyond the last one, sums that nobody reads.
        const float* const row = from + (warp_ + i * kWarps < CHUNK ? i * kWarps * kSumRow : 0);
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          sums[i][gate] = __fadd_rn(sums[i][gate], row[gate * kFrameUnits]);
        }
      }
    }
  }
  // What the lane's columns of a product have beside their weights.
  template <class P>
  __device__ __forceinline__ void load_columns(int number, ProductColumn (&columns)[kGates]) const {
    const ProductMatrix matrix = matrix_of(number);
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate)
      columns[gate] = ProductColumn::of<P>(matrix, gate * kUnits + unit_);
  }
  // Of rows first, first + kWarps, ... of the tile.
  template <class P>
  __device__ __forceinline__ void find_norms(int first, bool first_layer, float epsilon,
                                             NormFactors (&norms)[kEach]) const {
    if constexpr (P::kNormed) {
      const NormArguments of{epsilon, first_layer ? 1 : 0};
      rows_factors<P>([&](int i) { return shared_.x[least(first + i * kWarps, rows_ - 1)]; }, of, norms);
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i) norms[i] = {1.0f, 0.0f};
    }
  }

  // h of a layer, to where the same threads read it.
  __device__ __forceinline__ void add_states(int layer) {
    constexpr int kRowFours = H::kK / 4;
    sync();  // the places are there; of what is replaced all was read
    for (int i = thread_; i < rows_ * kRowFours; i += kThreads) {
      const int row = i / kRowFours, four = i % kRowFours;
      device::copy_async<16>(&shared_.x[row][4 * four], shared_.places[row].from + state_at(layer) + 4 * four,
                             true);
    }
    device::copies_done();
    sync();
    for_each_chunk(
        layer, [](int) {},
        [&](const Chunk& chunk) __attribute__((always_inline)) {
          ProductColumn columns[kGates];
          load_columns<H>(layer, columns);
          float sums[kEach][kGates];
          total(H::kK / kSegment, sums);
          for_each_row(
              chunk, [&](int i, int row) __attribute__((always_inline)) {
#pragma unroll
                for (int gate = 0; gate < kGates; ++gate) {
                  *place_of_h(row, layer, gate) =
                      columns[gate].value<H>(sums[i][gate], {1.0f, 0.0f}, 0.0f, gate * kUnits + unit_);
                }
              });
        });
  }

  const FrameArguments& args_;
  FrameShared& shared_;
  const int thread_, warp_, lane_, rank_, unit_;
  // The tile, its first agent, how many it has, and of how many chunks.
  const int tile_;
  const long long first_row_;
  const int rows_, chunks_;
  float4 held_[kGates][kFours];
};

#endif

}  // namespace policy
}  // namespace exphil
