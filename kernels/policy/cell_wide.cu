// A frame of a batch of agents through a cell that recalls its state, GRU or LSTM, with both products before
// it, as policy/cell_batch.cu, but on tensor cores by warpgroups (policy/product_wide.cuh), for tf32x3.
// Launched by c_src/cuda/policy/rows_walk.cpp. Compiled with the network and -D: CELL, its index.
//
// A block keeps the weights of some units with all gates in shared memory. Each of its pairs of warpgroups
// takes 64 agents after another: the first of a pair has the sums of x, the second those of h. Then each
// gives the other one those of half of the rows, and computes the cells of the other half. Where no launch
// before has found the factors of the norm, one pair works, and the other one finds them meanwhile. All
// blocks read all of hidden, so that the output goes to another array.
#include "kernels/policy/cell_batch.cuh"
#include "kernels/policy/product_wide.cuh"

#if EXPHIL_WARPGROUPS

namespace exphil {
namespace policy {

constexpr int kOwn = wide_cell(kNetwork, kIt).units, kWideColumns = kGates * kOwn;
constexpr int kPairThreads = 2 * device::kWarpgroup, kPairs = kCellWideThreads / kPairThreads;

// By the number of the sum; the two threads of a sum have the same place in their warpgroups.
using Given = float[kWideColumns / 4][device::kWarpgroup];
struct CellWideShared {
  WideMatrix<X::kK, kWideColumns> of_x;
  WideMatrix<H::kK, kWideColumns> of_h;
  Given given[kPairs];
  ProductColumn columns_of_x[kWideColumns];
  ProductColumn columns_of_h[kWideColumns];
  float scale[kWideRows], mean[kWideRows];
};
static_assert(sizeof(CellWideShared) == wide_cell(kNetwork, kIt).shared, "as the host has it");

class CellWide {
 public:
  __device__ __forceinline__ CellWide(const CellBatchArguments& args, CellWideShared& shared)
      : args_(args), shared_(shared), first_unit_(static_cast<int>(blockIdx.x) * kOwn) {}

  __device__ __forceinline__ void run() {
    begin_launch_after();
    const auto first_of = [&](int part) {
      constexpr int kParts = kOwn / kTogether;
      return part / kParts * kUnits + first_unit_ + part % kParts * kTogether;
    };
    stage_wide<kTogether, kWarps, product_columns(X::kOutputs)>(shared_.of_x, args_.of_x.weights, first_of);
    stage_wide<kTogether, kWarps, product_columns(H::kOutputs)>(shared_.of_h, args_.of_h.weights, first_of);
    if (thread() < kWideColumns) {
      const int column = thread() / kOwn * kUnits + first_unit_ + thread() % kOwn;
      shared_.columns_of_x[thread()] = ProductColumn::of<X>(args_.of_x, column);
      shared_.columns_of_h[thread()] = ProductColumn::of<H>(args_.of_h, column);
    }
    await_launch_before();
    __syncthreads();
    const bool finds = X::kNormed && args_.scale == nullptr;
    const int working = finds ? 1 : kPairs;
#pragma unroll 1
    for (long long round = 0;; ++round) {
      const long long first = (round * gridDim.y + blockIdx.y) * working * kWideRows;
      if (first >= args_.rows) return;
      if (round > 0 && finds) __syncthreads();  // the factors before are read
      advance(first + pair() % working * kWideRows, pair() < working);
    }
  }

 private:
  static constexpr int kTogether = kOwn % 16 == 0 ? 16 : 8, kWarps = kCellWideThreads / 32;
  static_assert(kOwn % kTogether == 0, "columns that follow one another");
  using Sums = WideSums<kWideColumns>;

  __device__ __forceinline__ static int pair() {
    return thread() / kPairThreads;
  }
  __device__ __forceinline__ static bool of_x() {
    return thread() % kPairThreads < device::kWarpgroup;
  }
  // The lane's two rows of the 64.
  __device__ __forceinline__ static int own_row(int half) {
    return lane() / 32 * 16 + Sums::row_of(2 * half);
  }
  // Beyond the last one its values are read instead, for sums that nobody reads.
  __device__ __forceinline__ long long existing(long long row) const {
    return row < args_.rows ? row : args_.rows - 1;
  }
  __device__ __forceinline__ const float* hidden(long long row) const {
    return args_.in + existing(row) * X::kK;
  }
  __device__ __forceinline__ const float* state(long long row) const {
    return layer_state(args_, existing(row)).from + kIt.state_at;
  }

  // 64 rows from `first` on. works: by this pair, which otherwise finds the factors of their norm.
  __device__ __forceinline__ void advance(long long first, bool works) {
    const long long rows[2] = {first + own_row(0), first + own_row(1)};
    Sums sums;
    if (!works) {
      find_norms(first);
    } else if (of_x()) {
      add_wide(shared_.of_x, 0, hidden(rows[0]), hidden(rows[1]), sums);
      give<1>(sums);
    } else {
      add_wide(shared_.of_h, 0, state(rows[0]), state(rows[1]), sums);
    }
    __syncthreads();
    float theirs[kWideColumns / 4];
    if (works && !of_x()) take(theirs), give<0>(sums);  // each thread in the place that it has read
    __syncthreads();
    if (!works) return;
    if (of_x()) {
      take(theirs);
      finish<0>(rows[0], sums, theirs);
    } else {
      finish<1>(rows[1], sums, theirs);
    }
    put_zeros(args_, first, kWideRows, thread() % kPairThreads, kPairThreads);
  }

  __device__ __forceinline__ void find_norms(long long first) const {
    if constexpr (X::kNormed) {
      constexpr int kWarpRows = kWideRows / (kPairThreads / 32);
      const int own = thread() % kPairThreads / 32 * kWarpRows;
      NormFactors factors[kWarpRows];
      rows_factors<X>([&](int i) { return hidden(first + own + i); }, args_, factors);
      if (thread() % 32 != 0) return;
#pragma unroll
      for (int i = 0; i < kWarpRows; ++i) {
        shared_.scale[own + i] = factors[i].scale, shared_.mean[own + i] = factors[i].mean;
      }
    }
  }
  // Of a row whose cells the lane computes, number `own` of the 64.
  __device__ __forceinline__ NormFactors factors(long long row, int own) const {
    if constexpr (!X::kNormed) return {1.0f, 0.0f};
    if (args_.scale == nullptr) return {shared_.scale[own], shared_.mean[own]};
    return {args_.scale[row], X::kCentres ? args_.scale[args_.rows + row] : 0.0f};
  }

  // The sums of a half of the rows, to the warpgroup that computes their cells; and what it takes.
  template <int kHalf>
  __device__ __forceinline__ void give(const Sums& sums) const {
#pragma unroll
    for (int n = 0; n < Sums::kTiles; ++n) {
#pragma unroll
      for (int i = 2 * kHalf; i < Sums::kSums; i += i % 2 == 0 ? 1 : 3) given(number(n, i)) = sums.of[n][i];
    }
  }
  __device__ __forceinline__ void take(float (&theirs)[kWideColumns / 4]) const {
#pragma unroll
    for (int i = 0; i < kWideColumns / 4; ++i) theirs[i] = given(i);
  }
  __device__ __forceinline__ float& given(int number) const {
    return shared_.given[pair()][number][lane()];
  }
  __device__ __forceinline__ static int number(int n, int i) {
    return n * (Sums::kSums / 2) + i / 4 * 2 + i % 2;
  }
  __device__ __forceinline__ static int lane() {
    return thread() % device::kWarpgroup;
  }

  // The cells of a row of half kHalf.
  template <int kHalf>
  __device__ __forceinline__ void finish(long long row, const Sums& sums,
                                         const float (&theirs)[kWideColumns / 4]) const {
    if (row >= args_.rows) return;
    const NormFactors norm = factors(row, own_row(kHalf));
    const StatePlace places = layer_state(args_, row);
    const float* const from = places.from + kIt.state_at + first_unit_;
    float* const to = places.to + kIt.state_at + first_unit_;
#pragma unroll
    for (int own = 0; own < kOwn; own += 8) {  // two units of these for each lane
      const int unit = own + Sums::column_of(0, 0);
      float out[2], after[kStates][2];
      Real states[2][kStates];
#pragma unroll
      for (int s = 0; s < kStates; ++s) {
        const float2 before = *reinterpret_cast<const float2*>(from + unit + s * kUnits);
        states[0][s] = {before.x}, states[1][s] = {before.y};
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        Real x[kGates], h[kGates];
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          const int column = gate * kOwn + own, n = column / Sums::kTileColumns,
                    i = column % Sums::kTileColumns / 2 + 2 * kHalf + j;
          const int at = gate * kOwn + unit + j, value = gate * kUnits + first_unit_ + unit + j;
          const float mine = sums.of[n][i], other = theirs[number(n, i)];
          x[gate] = {shared_.columns_of_x[at].value<X>(kHalf == 0 ? mine : other, norm, 0.0f, value)};
          h[gate] = {shared_.columns_of_h[at].value<H>(kHalf == 0 ? other : mine, {1.0f, 0.0f}, 0.0f, value)};
        }
        out[j] = formulas::advance_cell<kIt.cell, Math>(x, h, states[j]).v;
#pragma unroll
        for (int s = 0; s < kStates; ++s) after[s][j] = states[j][s].v;
      }
      put(args_.out + row * kColumns + first_unit_ + unit, out);
#pragma unroll
      for (int s = 0; s < kStates; ++s) put(to + unit + s * kUnits, after[s]);
    }
  }
  __device__ __forceinline__ static void put(float* to, const float (&values)[2]) {
    device::store_wide(to, make_float2(values[0], values[1]));
  }

  const CellBatchArguments& args_;
  CellWideShared& shared_;
  const int first_unit_;
};

}  // namespace policy
}  // namespace exphil

#endif

using namespace exphil::policy;

// grid: {units / wide_cell().units, blocks that share the rows}.
extern "C" __global__ void __launch_bounds__(kCellWideThreads, 1)
    policy_cell_wide(const CellBatchArguments args) {
#if EXPHIL_WARPGROUPS
  CellWide(args, *reinterpret_cast<CellWideShared*>(dynamic_shared())).run();
#else
  (void)args;  // not launched there
#endif
}
