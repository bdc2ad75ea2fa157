// A frame of a batch of agents through a cell that recalls its state, GRU or LSTM, with both products before
// it: x = W norm(hidden) and h = U state, and the cell of their sums. By themselves these are five launches
// for each layer (row_scales, two products, policy/cell.cu), which write the sums and read them again.
// Launched by c_src/cuda/policy/rows_walk.cpp. Compiled with the network and -D: CELL, its index.
//
//   policy_cell_batch  a layer's frame in one launch
//   policy_cell_ahead  h of all layers, which need no frame, while the frames are on their way
//   policy_cell_rest   then the rest of a layer's
//
// A half of a block's four warps has the sums of a product for kBatchRows agents and kBatchUnits units with
// all gates: in policy_cell_batch one half those of x and the other one those of h, for the same units. A
// lane has 2 agents and 2 units; then each of the two lanes that have a sum of the same value gives the other
// one half of its own, and computes the other half of the cells. In the others the halves have the same
// product for different units. All blocks read all of hidden, so that the output goes to another array.
//
// The order of each sum is that of policy/dot.cuh: a frame has the bits of a step.
#include "kernels/common/device_memory.cuh"
#include "kernels/policy/cell_batch.cuh"
#include "kernels/policy/product_some.cuh"

namespace exphil {
namespace policy {

static_assert(kUnits % (2 * kBatchUnits) == 0, "whole tiles, of halves with the same units or others");

constexpr int kLaneRows = 2, kLaneUnits = 2, kHalf = kBatchThreads / 2, kFours = kSegment / 4;
static_assert(kBatchRows == kHalf / 32 * 4 * kLaneRows && kBatchUnits == 8 * kLaneUnits,
              "half of the warps for each product");

// A segment of a product's tile: groups of four k. Padded against bank conflicts, as SomeSlice is.
struct alignas(16) BatchSlice {
  float4 x[kFours][kBatchRows + 1];
  Group w[kFours][kGates * kBatchUnits];
};
struct BatchShared {
  BatchSlice slices[2][2];  // of two segments, of which one is copied; by half
  ProductColumn columns[2][kGates * kBatchUnits];
  StatePlace states[kBatchRows];
  float scale[kBatchRows], mean[kBatchRows];
};
static_assert(sizeof(BatchShared) <= 48 * 1024, "static shared memory");

// policy_cell_ahead's work of a layer.
__device__ __forceinline__ CellBatchArguments layer_ahead(const CellAheadArguments& args, int layer) {
  CellBatchArguments made{};
  static_cast<RowStates&>(made) = args;
  made.state_offset += layer * args.layer_floats;
  made.of_h = of_layer(args.of_h, layer * args.layer_stride);
  made.out = args.out + layer * H::kOutputs;
  return made;
}

// Which products a launch has.
enum class CellPart { both, ahead, rest };

template <CellPart kPart>
class CellBatch {
 public:
  // args: of the layer.
  __device__ __forceinline__ CellBatch(const CellBatchArguments& args, BatchShared& shared)
      : args_(args),
        shared_(shared),
        thread_(device::launder(static_cast<int>(threadIdx.x))),
        half_(thread_ / kHalf),
        first_row_(static_cast<long long>(blockIdx.y) * kBatchRows),
        first_unit_(kPart == CellPart::both ? static_cast<int>(blockIdx.x) * kBatchUnits
                                            : (2 * static_cast<int>(blockIdx.x) + half_) * kBatchUnits),
        slices_(&shared.slices[0][half_]),
        weights_(of_x() ? weights<X>(args.of_x) : weights<H>(args.of_h)) {}

  __device__ __forceinline__ void run() {
    if (args_.shares == 0) begin_launch_after();
    copy_weights(0);
    if (thread_ < kBatchRows) shared_.states[thread_] = layer_state(args_, existing(thread_));
    load_columns();
    __syncthreads();
    // The launch before writes hidden alone.
    if (of_x()) await_launch_before();
    find_rows();
    copy_rows(0);
    load_cells();
    if (!of_x()) await_launch_before();
    if constexpr (kPart != CellPart::ahead) find_norms();
    const int most_segments = kPart == CellPart::both ? most(segments_of_x(), H::kK / kSegment) : segments();
#pragma unroll 1
    for (int segment = 0; segment < most_segments; ++segment) {
      device::copies_done();
      __syncthreads();
      copy_weights(segment + 1), copy_rows(segment + 1);
      if (segment < segments()) add_segment(segment);
    }
    if (args_.shares != 0) begin_launch_after();
    if constexpr (kPart == CellPart::ahead) {
      write_sums();
    } else if constexpr (kPart == CellPart::rest) {
      finish<0, kLaneRows>();
    } else {
      __syncthreads();
      if (of_x()) {
        give<kLaneRows / 2>();
      } else {
        give<0>();
      }
      __syncthreads();
      if (of_x()) {
        finish<0, kLaneRows / 2>();
      } else {
        finish<kLaneRows / 2, kLaneRows / 2>();
      }
    }
    if constexpr (kPart != CellPart::ahead) put_zeros(args_, first_row_, kBatchRows, thread_, kBatchThreads);
  }

 private:
  // What the two lanes of a value give each other.
  using Given = float[kGates][kBatchRows][kBatchUnits + 1];
  static_assert(sizeof(Given) <= sizeof(BatchSlice[2][2]), "in the place of the slices");

  __device__ __forceinline__ bool of_x() const {
    return kPart == CellPart::rest || (kPart == CellPart::both && half_ == 0);
  }
  // Those of hidden beyond its values would add nothing: they are zeros.
  __device__ __forceinline__ int segments_of_x() const {
    return divide_up(args_.first_layer != 0 ? X::kFirst : X::kValues, kSegment);
  }
  __device__ __forceinline__ int segments() const {
    return of_x() ? segments_of_x() : H::kK / kSegment;
  }
  __device__ __forceinline__ int own_row(int i) const {
    return thread_ % kHalf / 32 * (4 * kLaneRows) + lane_row(thread_ % 32) + 4 * i;
  }
  __device__ __forceinline__ int own_unit(int j) const {
    return lane_column(thread_ % 32) + 8 * j;
  }
  __device__ __forceinline__ BatchSlice& slice(int segment) const {
    return slices_[segment % 2 * 2];
  }

  // A thread copies one column of each segment's groups, where it has one.
  static constexpr int kCopied = kGates * kBatchUnits;
  static_assert(kCopied <= kHalf, "a thread for each column");
  template <class P>
  __device__ __forceinline__ const Group* weights(const ProductMatrix& matrix) const {
    const int column = thread_ % kHalf;
    return static_cast<const Group*>(matrix.weights) + column / kBatchUnits * kUnits + first_unit_ +
           column % kBatchUnits;
  }
  __device__ __forceinline__ void copy_weights(int segment) {
    constexpr int kStride = product_columns(X::kOutputs);
    static_assert(kStride == product_columns(H::kOutputs), "as many columns of both");
    if (segment >= segments() || thread_ % kHalf >= kCopied) return;
    Group* const to = &slice(segment).w[0][thread_ % kHalf];
#pragma unroll
    for (int g = 0; g < kFours; ++g)
      device::copy_async<sizeof(Group)>(to + g * kCopied, weights_ + g * kStride, true);
    weights_ += kFours * kStride;
  }

  // And one group of every eighth row.
  static constexpr int kRowStep = kHalf / kFours, kRows = kBatchRows / kRowStep;
  __device__ __forceinline__ void find_rows() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = thread_ % kHalf / kFours + i * kRowStep;
      rows_[i] = (of_x() ? hidden_row(row) : state_row(row)) + 4 * (thread_ % kFours);
    }
  }
  __device__ __forceinline__ void copy_rows(int segment) {
    if (segment >= segments()) return;
    float4* const to = &slice(segment).x[thread_ % kFours][thread_ % kHalf / kFours];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      device::copy_async<16>(to + i * kRowStep, rows_[i], true);
      rows_[i] += kSegment;
    }
  }
  // A row of the tile; beyond the last one another, for sums that nobody reads.
  __device__ __forceinline__ long long existing(int row) const {
    return first_row_ + row < args_.rows ? first_row_ + row : args_.rows - 1;
  }
  __device__ __forceinline__ const float* hidden_row(int row) const {
    return args_.in + existing(row) * X::kK;
  }
  __device__ __forceinline__ const float* state_row(int row) const {
    return shared_.states[row].from + kIt.state_at;
  }

  // A half's.
  __device__ __forceinline__ void load_columns() const {
    for (int i = thread_ % kHalf; i < kGates * kBatchUnits; i += kHalf) {
      const int column = i / kBatchUnits * kUnits + first_unit_ + i % kBatchUnits;
      shared_.columns[half_][i] =
          of_x() ? ProductColumn::of<X>(args_.of_x, column) : ProductColumn::of<H>(args_.of_h, column);
    }
  }

  // What finish() needs of the lane's cells, while the first copies are under way.
  static constexpr int kCells = (kPart == CellPart::both ? 1 : 2) * kLaneRows / 2 * kLaneUnits;
  __device__ __forceinline__ void load_cells() {
    if constexpr (kPart == CellPart::ahead) return;
    constexpr int kRows = kPart == CellPart::both ? kLaneRows / 2 : kLaneRows;
    for_each_cell<kRows>(kPart == CellPart::both && !of_x() ? kRows : 0, [&](int cell, int row, int own) {
      const int unit = first_unit_ + own;
#pragma unroll
      for (int s = 0; s < kStates; ++s) states_[cell][s] = {state_row(row)[unit + s * kUnits]};
      if constexpr (kPart == CellPart::rest) {
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) h_[cell][gate] = {args_.h[sum_at(row, gate, unit)]};
      }
    });
  }
  __device__ __forceinline__ long long sum_at(int row, int gate, int unit) const {
    return (first_row_ + row) * (kNetwork.layers * H::kOutputs) + gate * kUnits + unit;
  }
  __device__ __forceinline__ void find_norms() const {
    if constexpr (X::kNormed) {
      constexpr int kWarps = kBatchThreads / 32, kEach = kBatchRows / kWarps;
      const int own = thread_ / 32 * kEach;
      NormFactors factors[kEach];
      rows_factors<X>([&](int i) { return hidden_row(own + i); }, args_, factors);
      if (thread_ % 32 != 0) return;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        shared_.scale[own + i] = factors[i].scale, shared_.mean[own + i] = factors[i].mean;
      }
    }
  }

  // Calls call(cell, row, unit) for each cell of kRows rows of the lane that exists, from number `first` on.
  template <int kRows, class Call>
  __device__ __forceinline__ void for_each_cell(int first, Call call) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = own_row(first + i);
      if (first_row_ + row >= args_.rows) continue;
#pragma unroll
      for (int j = 0; j < kLaneUnits; ++j) call(i * kLaneUnits + j, row, own_unit(j));
    }
  }

  __device__ __forceinline__ void add_segment(int segment) {
    const BatchSlice& from = slice(segment);
    const float4* const rows = &from.x[0][own_row(0)];
    const Group* const columns = &from.w[0][own_unit(0)];
    float sum[kGates][kLaneRows][kLaneUnits] = {};
#pragma unroll
    for (int g = 0; g < kFours; ++g) {
      float4 x[kLaneRows];
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) x[i] = rows[g * (kBatchRows + 1) + 4 * i];
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
        for (int j = 0; j < kLaneUnits; ++j) {
          const float4 w = widen(columns[g * kCopied + gate * kBatchUnits + 8 * j]);
#pragma unroll
          for (int i = 0; i < kLaneRows; ++i) sum[gate][i][j] = dot4(w, x[i], sum[gate][i][j]);
        }
      }
    }
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
#pragma unroll
        for (int j = 0; j < kLaneUnits; ++j) {
          total_[gate][i][j] = __fadd_rn(total_[gate][i][j], sum[gate][i][j]);
        }
      }
    }
  }

  __device__ __forceinline__ Given& given() const {
    return *reinterpret_cast<Given*>(shared_.slices);
  }

  // Rows [kFirst, kFirst + kLaneRows / 2) of the lane to the one that has the other sums of the same values.
  template <int kFirst>
  __device__ __forceinline__ void give() const {
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
      for (int i = kFirst; i < kFirst + kLaneRows / 2; ++i) {
#pragma unroll
        for (int j = 0; j < kLaneUnits; ++j) given()[gate][own_row(i)][own_unit(j)] = total_[gate][i][j];
      }
    }
  }

  // The cells of rows [kFirst, kFirst + kRows) of the lane.
  template <int kFirst, int kRows>
  __device__ __forceinline__ void finish() {
    for_each_cell<kRows>(
        kFirst, [&](int cell, int row, int own) __attribute__((always_inline)) {
          const int unit = first_unit_ + own;
          NormFactors norm{1.0f, 0.0f};
          if constexpr (X::kNormed) norm = {shared_.scale[row], shared_.mean[row]};
          Real x[kGates], h[kGates];
#pragma unroll
          for (int gate = 0; gate < kGates; ++gate) {
            const float mine = total_[gate][kFirst + cell / kLaneUnits][cell % kLaneUnits];
            const int column = gate * kUnits + unit;
            const auto x_of = [&](int half, float sum) {
              return shared_.columns[half][gate * kBatchUnits + own].value<X>(sum, norm, 0.0f, column);
            };
            if constexpr (kPart == CellPart::rest) {
              x[gate] = {x_of(half_, mine)}, h[gate] = h_[cell][gate];
            } else {
              const float other = given()[gate][row][own];
              x[gate] = {x_of(0, kFirst == 0 ? mine : other)};
              h[gate] = {h_of(1, gate, own, kFirst == 0 ? other : mine)};
            }
          }
          args_.out[(first_row_ + row) * kColumns + unit] =
              formulas::advance_cell<kIt.cell, Math>(x, h, states_[cell]).v;
          float* const to = shared_.states[row].to + kIt.state_at + unit;
#pragma unroll
          for (int s = 0; s < kStates; ++s) to[s * kUnits] = states_[cell][s].v;
        });
  }
  __device__ __forceinline__ float h_of(int half, int gate, int own, float sum) const {
    return shared_.columns[half][gate * kBatchUnits + own].value<H>(sum, {1.0f, 0.0f}, 0.0f,
                                                                    gate * kUnits + first_unit_ + own);
  }
  __device__ __forceinline__ void write_sums() const {
    for_each_cell<kLaneRows>(
        0, [&](int cell, int row, int own) __attribute__((always_inline)) {
#pragma unroll
          for (int gate = 0; gate < kGates; ++gate) {
            args_.out[sum_at(row, gate, first_unit_ + own)] =
                h_of(half_, gate, own, total_[gate][cell / kLaneUnits][cell % kLaneUnits]);
          }
        });
  }

  const CellBatchArguments& args_;
  BatchShared& shared_;
  const int thread_, half_;
  const long long first_row_;
  const int first_unit_;
  BatchSlice* const slices_;  // of its product, the first one
  const Group* weights_;      // of the next segment, its column
  const float* rows_[kRows];  // and its groups
  float total_[kGates][kLaneRows][kLaneUnits] = {};
  Real states_[kCells][kStates] = {}, h_[kCells][kGates] = {};
};

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// grid: {units / kBatchUnits, ceil(rows / kBatchRows)}; of the others half as many units, of
// policy_cell_ahead also {layers}.
extern "C" __global__ void __launch_bounds__(kBatchThreads, 4)
    policy_cell_batch(const CellBatchArguments args) {
  __shared__ BatchShared shared;
  CellBatch<CellPart::both>(args, shared).run();
}
extern "C" __global__ void __launch_bounds__(kBatchThreads, 4)
    policy_cell_rest(const CellBatchArguments args) {
  __shared__ BatchShared shared;
  CellBatch<CellPart::rest>(args, shared).run();
}
extern "C" __global__ void __launch_bounds__(kBatchThreads, 4)
    policy_cell_ahead(const CellAheadArguments args) {
  __shared__ BatchShared shared;
  const CellBatchArguments of_layer = layer_ahead(args, static_cast<int>(blockIdx.z));
  CellBatch<CellPart::ahead>(of_layer, shared).run();
}
