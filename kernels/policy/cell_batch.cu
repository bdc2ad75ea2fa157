// A frame of a batch of agents through a cell that recalls its state, GRU or LSTM, with both products before
// it: x = W norm(hidden) and h = U state, and the cell of their sums, in one launch. By themselves these are
// five (row_scales, two products, policy/cell.cu), which write the sums and read them again. Launched by
// c_src/cuda/policy/rows_walk.cpp. Compiled with the network and -D: CELL, its index.
//
// A block has a tile of kBatchRows agents and kBatchUnits units with all gates. Two of its four warps have
// the sums of x, and two those of h, half of the agents each; a lane has 2 agents and 2 units. Then each of
// the two lanes that have a sum of the same value gives the other one half of its own, and computes the other
// half of the cells. All blocks read all of hidden, so that the output goes to another array.
//
// The order of each sum is that of policy/dot.cuh: a frame has the bits of a step.
#include "kernels/common/device_memory.cuh"
#include "kernels/policy/cell_batch.cuh"
#include "kernels/policy/product_some.cuh"

namespace exphil {
namespace policy {

static_assert(kUnits % kBatchUnits == 0, "whole tiles");

constexpr int kLaneRows = 2, kLaneUnits = 2, kHalf = kBatchThreads / 2, kFours = kSegment / 4;
static_assert(kBatchRows == kHalf / 32 * 4 * kLaneRows && kBatchUnits == 8 * kLaneUnits,
              "half of the warps for each product");

// A segment of a product's tile: groups of four k. Padded against bank conflicts, as SomeSlice is.
struct alignas(16) BatchSlice {
  float4 x[kFours][kBatchRows + 1];
  Group w[kFours][kGates * kBatchUnits];
};
struct BatchShared {
  BatchSlice slices[2][2];  // of two segments, of which one is copied; by product
  ProductColumn columns_of_x[kGates * kBatchUnits], columns_of_h[kGates * kBatchUnits];
  StatePlace states[kBatchRows];
  float scale[kBatchRows], mean[kBatchRows];
};
static_assert(sizeof(BatchShared) <= 48 * 1024, "static shared memory");

class CellBatch {
 public:
  __device__ __forceinline__ CellBatch(const CellBatchArguments& args, BatchShared& shared)
      : args_(args),
        shared_(shared),
        thread_(device::launder(static_cast<int>(threadIdx.x))),
        first_row_(static_cast<long long>(blockIdx.y) * kBatchRows),
        first_unit_(static_cast<int>(blockIdx.x) * kBatchUnits),
        slices_(&shared.slices[0][of_x() ? 0 : 1]),
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
    load_states();
    if (!of_x()) await_launch_before();
    find_norms();
#pragma unroll 1
    for (int segment = 0; segment < most(segments_of_x(), H::kK / kSegment); ++segment) {
      device::copies_done();
      __syncthreads();
      copy_weights(segment + 1), copy_rows(segment + 1);
      if (segment < segments()) add_segment(segment);
    }
    if (args_.shares != 0) begin_launch_after();
    __syncthreads();
    if (of_x()) {
      give<kLaneRows / 2>();
    } else {
      give<0>();
    }
    __syncthreads();
    if (of_x()) {
      finish<0>();
    } else {
      finish<kLaneRows / 2>();
    }
    put_zeros(args_, first_row_, kBatchRows, thread_, kBatchThreads);
  }

 private:
  // What the two lanes of a value give each other.
  using Given = float[kGates][kBatchRows][kBatchUnits + 1];
  static_assert(sizeof(Given) <= sizeof(BatchSlice[2][2]), "in the place of the slices");

  __device__ __forceinline__ bool of_x() const {
    return thread_ < kHalf;
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

  __device__ __forceinline__ void load_columns() const {
    for (int i = thread_; i < kGates * kBatchUnits; i += kBatchThreads) {
      const int column = i / kBatchUnits * kUnits + first_unit_ + i % kBatchUnits;
      shared_.columns_of_x[i] = ProductColumn::of<X>(args_.of_x, column);
      shared_.columns_of_h[i] = ProductColumn::of<H>(args_.of_h, column);
    }
  }

  // Both while the first copies are under way. The states are those of the cells that finish() computes.
  __device__ __forceinline__ void load_states() {
    for_each_cell(of_x() ? 0 : kLaneRows / 2, [&](int cell, int row, int unit) {
#pragma unroll
      for (int s = 0; s < kStates; ++s) states_[cell][s] = {state_row(row)[first_unit_ + unit + s * kUnits]};
    });
  }
  __device__ __forceinline__ void find_norms() const {
    if constexpr (X::kNormed) {
      constexpr int kWarps = kBatchThreads / 32, kEach = kBatchRows / kWarps;
      const int own = thread_ / 32 * kEach;
      NormFactors factors[kEach];
      find_factors(
          args_, [&](int i) { return hidden_row(own + i); }, factors);
      if (thread_ % 32 != 0) return;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        shared_.scale[own + i] = factors[i].scale, shared_.mean[own + i] = factors[i].mean;
      }
    }
  }

  // Calls call(cell, row, unit) for each cell of the thread that exists, of its rows from number `first` on.
  template <class Call>
  __device__ __forceinline__ void for_each_cell(int first, Call call) const {
#pragma unroll
    for (int i = 0; i < kLaneRows / 2; ++i) {
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

  // The cells of rows [kFirst, kFirst + kLaneRows / 2) of the lane.
  template <int kFirst>
  __device__ __forceinline__ void finish() {
    for_each_cell(
        kFirst, [&](int cell, int row, int own) __attribute__((always_inline)) {
          const int unit = first_unit_ + own;
          NormFactors norm{1.0f, 0.0f};
          if constexpr (X::kNormed) norm = {shared_.scale[row], shared_.mean[row]};
          Real x[kGates], h[kGates];
#pragma unroll
          for (int gate = 0; gate < kGates; ++gate) {
            const float mine = total_[gate][kFirst + cell / kLaneUnits][cell % kLaneUnits];
            const float other = given()[gate][row][own];
            const int at = gate * kBatchUnits + own, column = gate * kUnits + unit;
            x[gate] = {shared_.columns_of_x[at].value<X>(kFirst == 0 ? mine : other, norm, 0.0f, column)};
            h[gate] = {
                shared_.columns_of_h[at].value<H>(kFirst == 0 ? other : mine, {1.0f, 0.0f}, 0.0f, column)};
          }
          args_.out[(first_row_ + row) * kColumns + unit] =
              formulas::advance_cell<kIt.cell, Math>(x, h, states_[cell]).v;
          float* const to = shared_.states[row].to + kIt.state_at + unit;
#pragma unroll
          for (int s = 0; s < kStates; ++s) to[s * kUnits] = states_[cell][s].v;
        });
  }

  const CellBatchArguments& args_;
  BatchShared& shared_;
  const int thread_;
  const long long first_row_;
  const int first_unit_;
  BatchSlice* const slices_;  // of its product, the first one
  const Group* weights_;      // of the next segment, its column
  const float* rows_[kRows];  // and its groups
  float total_[kGates][kLaneRows][kLaneUnits] = {};
  Real states_[kLaneRows / 2 * kLaneUnits][kStates] = {};
};

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// grid: {units / kBatchUnits, ceil(rows / kBatchRows)}.
extern "C" __global__ void __launch_bounds__(kBatchThreads, 4)
    policy_cell_batch(const CellBatchArguments args) {
  __shared__ BatchShared shared;
  CellBatch(args, shared).run();
}
